"""Sends READY to every peer of an operation, and repeats it until the peer knows."""

from dataclasses import dataclass, field
from typing import Any, Final

from dlcpd.core.paths.newest import microseconds
from dlcpd.core.paths.paths import CONTROL
from dlcpd.core.session.flow import Flow
from dlcpd.core.session.stream_ids import OperationId
from dlcpd.core.timers import Timer, TimerTable
from dlcpd.core.wire.control import Ready
from dlcpd.core.wire.header import MAX_ROUND, Flag, Header, Kind

# Repetitions at a time, to one peer; halved each time that the peer shows no knowledge of any. A
# peer with more READYs than it can take in must not get the same ones over and over.
MOST_AGAIN: Final = 16


@dataclass(slots=True)
class Telling:
    """This rank's READY of an operation, while it may not have arrived."""

    ready: Ready
    checked: int  # operation whose replica digest it carries
    digest: int
    late: bool  # the peer's data of the operation came and were not kept
    attempt: int = 0
    told_at: float = 0.0


@dataclass(slots=True)
class Untold:
    """The READYs that one peer may not know, the least recently sent first."""

    tellings: dict[OperationId, Telling] = field(default_factory=dict)
    attempt: int = 0  # times in a row that the peer knew nothing new when the timer expired


@dataclass(slots=True, eq=False)
class Announcements:
    """Owns one timer per peer, set for `owner`."""

    owner: Any
    timers: TimerTable
    _untold: dict[int, Untold] = field(default_factory=dict)  # by rank

    def begin(self, flow: Flow, operation: OperationId, telling: Telling, now: float) -> None:
        """Send READY of an operation to the peer of `flow`, until the peer knows it."""
        flow.outbox.imply_complete(operation[0], telling.checked)
        untold = self._untold.setdefault(flow.rank, Untold())
        untold.tellings[operation] = telling
        self._tell(flow, operation, telling, now)
        if not self.timers.pending(self._timer(flow.rank)):
            self._look_later(flow, untold, now)

    def repeat(self, flow: Flow, now: float) -> None:
        """The timer of a peer expired before it showed that it knows."""
        untold = self._untold.get(flow.rank)
        if untold is None or not untold.tellings:
            return
        wait = flow.paths.timeout(CONTROL, untold.attempt)
        due = [at for at, told in untold.tellings.items() if now >= told.told_at + wait]
        for operation in due[: max(MOST_AGAIN >> untold.attempt, 1)]:
            telling = untold.tellings.pop(operation)
            telling.attempt += 1
            untold.tellings[operation] = telling  # the others come first next time
            self._tell(flow, operation, telling, now)
        untold.attempt += bool(due)
        self._look_later(flow, untold, now)

    def known(self, rank: int, operation: OperationId) -> None:
        """`rank` has this rank's READY: no need to repeat it."""
        untold = self._untold.get(rank)
        if untold is None or untold.tellings.pop(operation, None) is None:
            return
        untold.attempt = 0
        if not untold.tellings:
            self.timers.cancel(self._timer(rank))

    def unknown(self, rank: int, operation: OperationId) -> bool:
        """Whether this rank's READY may not have reached `rank`."""
        untold = self._untold.get(rank)
        return untold is not None and operation in untold.tellings

    def _tell(self, flow: Flow, operation: OperationId, telling: Telling, now: float) -> None:
        telling.told_at = now
        stream, _, number = operation
        ready = telling.ready.told(flow.opening, telling.checked, telling.digest)
        header = Header(
            Kind.READY,
            flow.token_out,
            number,
            stream,
            round=min(telling.attempt, MAX_ROUND),
            flags=Flag.LATE if telling.late else Flag.NONE,
            sent_at=microseconds(now) or 1,
        )
        # on every path: READY must precede the data on each of them
        flow.outbox.put_everywhere(header, ready.pack())

    def _look_later(self, flow: Flow, untold: Untold, now: float) -> None:
        """Set the timer for when the oldest is due; not at once, where more are due than may be
        repeated."""
        oldest = next(iter(untold.tellings.values())).told_at
        at = oldest + flow.paths.timeout(CONTROL, untold.attempt)
        self.timers.set(self._timer(flow.rank), max(at, now + flow.paths.timeout(CONTROL)))

    def _timer(self, rank: int) -> tuple[Any, Timer, int]:
        return self.owner, Timer.READY, rank
