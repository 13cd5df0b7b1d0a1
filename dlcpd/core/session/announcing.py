"""READY on its way out: told to every peer of an operation, again until it is known there."""

from dataclasses import dataclass, field
from typing import Any

from dlcpd.core.paths.paths import CONTROL
from dlcpd.core.session.flow import Flow
from dlcpd.core.session.stream import OperationId
from dlcpd.core.timers import Timer, TimerTable
from dlcpd.core.wire.control import Ready
from dlcpd.core.wire.header import MAX_ROUND, Flag, Header, Kind


@dataclass(slots=True)
class Telling:
    """Our READY towards one peer, while it may not have arrived."""

    ready: Ready
    checked: int  # operation whose replica digest it carries
    digest: int
    late: bool  # data of the operation came from there and were not kept
    attempt: int = 0


@dataclass(slots=True, eq=False)
class Announcements:
    """`owner` is what the timers are set for."""

    owner: Any
    timers: TimerTable
    _telling: dict[tuple[int, OperationId], Telling] = field(default_factory=dict)  # by rank

    def begin(self, flow: Flow, operation: OperationId, telling: Telling, now: float) -> None:
        """Tell the peer of `flow` of an operation."""
        flow.outbox.imply_complete(operation[0], telling.checked)
        self._telling[flow.rank, operation] = telling
        self._tell(flow, operation, telling, now)

    def repeat(self, flow: Flow, operation: OperationId, now: float) -> None:
        """The time is up in which the peer should have shown that it knows."""
        telling = self._telling.get((flow.rank, operation))
        if telling is not None:
            telling.attempt += 1
            self._tell(flow, operation, telling, now)

    def known(self, rank: int, operation: OperationId) -> None:
        """`rank` has our READY: no need to repeat it."""
        if self._telling.pop((rank, operation), None) is not None:
            self.timers.cancel((self.owner, Timer.READY, (rank, operation)))

    def unknown(self, rank: int, operation: OperationId) -> bool:
        """Whether our READY may not have reached `rank`."""
        return (rank, operation) in self._telling

    def _tell(self, flow: Flow, operation: OperationId, telling: Telling, now: float) -> None:
        stream, _, number = operation
        ready = telling.ready.told(flow.opening, telling.checked, telling.digest)
        header = Header(
            Kind.READY, flow.token_out, number, stream, round=min(telling.attempt, MAX_ROUND),
            flags=Flag.LATE if telling.late else Flag.NONE,
        )  # fmt: skip
        # on every path: what follows on any of them must find it there
        flow.outbox.put_everywhere(header, ready.pack())
        at = now + flow.paths.timeout(CONTROL, telling.attempt)
        self.timers.set((self.owner, Timer.READY, (flow.rank, operation)), at)
