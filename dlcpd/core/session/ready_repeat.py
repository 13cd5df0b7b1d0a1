"""Sends READY to every peer of an operation, and repeats it until the peer has it."""

from dataclasses import dataclass, field
from typing import Any, Final

from dlcpd.core.paths.newest import microseconds
from dlcpd.core.paths.paths import CONTROL
from dlcpd.core.paths.rtt import MIN_RTO
from dlcpd.core.session.flow import Flow
from dlcpd.core.session.stream_ids import OperationId
from dlcpd.core.timers import Timer, TimerTable
from dlcpd.core.wire.control import Ready
from dlcpd.core.wire.header import CARRIES, LATE, MAX_ROUND, Header, Kind

# Repetitions at a time, to one peer; halved each time that the peer shows no knowledge of any. A
# peer with more READYs than it can take in must not get the same ones over and over.
MOST_AGAIN: Final = 16
# Bytes that READYs without an answer may carry to one peer: no congestion control counts them, so
# they stay under the smallest window.
MOST_CARRIED: Final = 16 << 10
APART: Final = 2  # unanswered repetitions after which the data of a READY are sent as DATA, whose
# transfer finds out what does not pass


@dataclass(slots=True)
class PendingReady:
    """This rank's READY of an operation, while it may not have arrived."""

    ready: Ready
    checked: int  # operation whose replica digest it carries
    digest: int
    late: bool  # the peer's data of the operation came and were not kept
    attempt: int = 0
    sent_at: float = 0.0

    @property
    def size(self) -> int:
        """Bytes of data that it carries."""
        return len(self.ready.carried or b"")


@dataclass(slots=True)
class Unacked:
    """The READYs that one peer may not have, the least recently sent first."""

    readys: dict[OperationId, PendingReady] = field(default_factory=dict)
    attempt: int = 0  # times in a row that the peer knew nothing new when the timer expired
    carried: int = 0  # bytes that they carry


@dataclass(slots=True, eq=False, repr=False)
class ReadyRepeater:
    """Owns one timer per peer, set for `owner`."""

    owner: Any
    timers: TimerTable
    _unacked: dict[int, Unacked] = field(default_factory=dict)  # by rank

    def send(self, flow: Flow, operation: OperationId, ready: PendingReady, now: float) -> None:
        """Send READY of an operation to the peer of `flow`, until the peer has it."""
        flow.outbox.imply_complete(operation[0], ready.checked)
        unacked = self._unacked.setdefault(flow.rank, Unacked())
        unacked.readys[operation] = ready
        unacked.carried += ready.size
        self._send(flow, operation, ready, now)
        if not self.timers.pending(self._timer(flow.rank)):
            self._check_later(flow, unacked, now)

    def has_room(self, rank: int, size: int) -> bool:
        """Whether a READY to `rank` may carry `size` bytes now."""
        unacked = self._unacked.get(rank)
        return size + (unacked.carried if unacked is not None else 0) <= MOST_CARRIED

    def repeat(self, flow: Flow, now: float) -> list[OperationId]:
        """The timer of a peer expired before it showed that it has all READYs. Returns operations
        whose data READY carries no more."""
        unacked, apart = self._unacked.get(flow.rank), list[OperationId]()
        if unacked is None or not unacked.readys:
            return apart
        wait = flow.paths.timeout(CONTROL, unacked.attempt)
        due = [at for at, ready in unacked.readys.items() if now >= ready.sent_at + wait]
        for operation in due[: max(MOST_AGAIN >> unacked.attempt, 1)]:
            ready = unacked.readys.pop(operation)
            ready.attempt += 1
            if ready.ready.carried is not None and ready.attempt > APART:
                unacked.carried -= ready.size
                ready.ready = ready.ready._replace(carried=None)
                apart.append(operation)
                flow.agenda.unanswered.add(flow.index)
            unacked.readys[operation] = ready  # the others come first next time
            self._send(flow, operation, ready, now)
        unacked.attempt += bool(due)
        self._check_later(flow, unacked, now)
        return apart

    def remind(self, flow: Flow, operation: OperationId, now: float) -> None:
        """Data of an operation are about to leave for the peer of `flow`, or have left: send its
        READY once more, if it may not have arrived. Without it, the peer would discard the data
        until the timer expires.

        On a short path, only if it loses datagrams: else the timer costs no more.
        """
        unacked = self._unacked.get(flow.rank)
        ready = unacked.readys.get(operation) if unacked is not None else None
        if ready is None or ready.ready.carried is not None:
            return
        paths = flow.paths
        if paths.is_lossy or (paths.is_long and now >= ready.sent_at + MIN_RTO):
            flow.outbox.put_everywhere(*self._datagram(flow, operation, ready, now))

    def is_sender_only(self, rank: int, operation: OperationId) -> bool:
        """Whether `rank` may lack this rank's READY of an operation in which it sends data to this
        rank and receives none. It needs nothing of this rank for its own result."""
        unacked = self._unacked.get(rank)
        pending = unacked.readys.get(operation) if unacked is not None else None
        return pending is not None and not pending.ready.outgoing and pending.ready.incoming > 0

    def acked(self, rank: int, operation: OperationId) -> bool:
        """`rank` has this rank's READY: no need to repeat it. Returns whether that is news."""
        unacked = self._unacked.get(rank)
        ready = unacked.readys.pop(operation, None) if unacked is not None else None
        if unacked is None or ready is None:
            return False
        unacked.carried -= ready.size
        unacked.attempt = 0
        if not unacked.readys:
            self.timers.cancel(self._timer(rank))
        return True

    def _send(self, flow: Flow, operation: OperationId, pending: PendingReady, now: float) -> None:
        pending.sent_at = now
        header, body = self._datagram(flow, operation, pending, now)
        if pending.ready.carried is not None and not pending.attempt:
            flow.outbox.put(header, body)
        else:  # on every path: READY must precede the data on each of them
            flow.outbox.put_everywhere(header, body)

    def _datagram(
        self, flow: Flow, operation: OperationId, pending: PendingReady, now: float
    ) -> tuple[Header, bytes]:
        stream, _, number = operation
        carries = pending.ready.carried is not None
        ready = pending.ready.told(flow.opening, pending.checked, pending.digest)
        flags = (LATE if pending.late else 0) | (CARRIES if carries else 0)
        header = Header(
            Kind.READY,
            flow.token_out,
            number,
            stream,
            round=min(pending.attempt, MAX_ROUND),
            flags=flags,
            sent_at=microseconds(now) or 1,
        )
        return header, ready.pack()

    def _check_later(self, flow: Flow, unacked: Unacked, now: float) -> None:
        """Set the timer for when the oldest is due; not at once, where more are due than may be
        repeated."""
        oldest = next(iter(unacked.readys.values())).sent_at
        at = oldest + flow.paths.timeout(CONTROL, unacked.attempt)
        self.timers.set(self._timer(flow.rank), max(at, now + flow.paths.timeout(CONTROL)))

    def _timer(self, rank: int) -> tuple[Any, Timer, int]:
        return self.owner, Timer.READY, rank
