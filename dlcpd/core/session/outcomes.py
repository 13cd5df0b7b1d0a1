"""The outcomes of operations and of a session, as events for its owner."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from dlcpd.contract.errors import NOBODY, DlcpError, Peer, error_for
from dlcpd.core.session.events import (
    Event,
    OperationDone,
    OperationDue,
    OperationFailed,
    OperationReleased,
    SessionBroken,
    Stats,
)
from dlcpd.core.session.operation import Operation
from dlcpd.core.session.totals import Totals


@dataclass(slots=True)
class Outcomes:
    """Events in the order in which they happened; `session` is the session's number."""

    session: int
    events: list[Event] = field(default_factory=list)
    broken: tuple[str, str] | None = None  # code, text: nothing can be submitted any more
    culprit: Peer = NOBODY  # the peer that broke it
    totals: Totals = field(default_factory=Totals)
    _departure: SessionBroken | None = None  # of a peer that left while operations went on

    @property
    def reason(self) -> DlcpError | None:
        """The error that broke the session, if any did."""
        return None if self.broken is None else error_for(*self.broken, self.culprit)

    def raise_if_broken(self) -> None:
        """Raises: the error that broke the session."""
        if (reason := self.reason) is not None:
            raise reason

    def take(self) -> list[Event]:
        """The events since the last call."""
        events, self.events = self.events, []
        return events

    def done(self, operation: Operation, stats: Stats, source: int, now: float) -> None:
        """The result of an operation is in place."""
        self.totals.complete(stats, max(now - operation.begun, 0.0))
        self.events.append(
            OperationDone(self.session, operation.ticket, operation.released, stats, source)
        )

    def due(self, ticket: int, step: int, start: int, size: int, *, steps: int) -> None:
        """A step of an operation is the client's to compute: one of `steps` of them."""
        self.events.append(OperationDue(self.session, ticket, step, start, size, steps))

    def released(self, operation: Operation) -> None:
        """No peer needs the memory of a done operation."""
        self.events.append(OperationReleased(self.session, operation.ticket))

    def failed(self, operation: Operation, error: DlcpError, ranks: Iterable[int]) -> None:
        """An operation that had begun ended without a result: `ranks` must be told."""
        wire, _, number = operation.id
        self.refused(operation.ticket, error, wire, number, tuple(ranks))

    def refused(
        self,
        ticket: int,
        error: DlcpError,
        stream: int = 0,
        number: int = 0,
        ranks: tuple[int, ...] = (),
    ) -> None:
        """An operation that never began. `ranks` know it as `number` of `stream`."""
        self.totals.failed[error.code] += 1
        self.events.append(
            OperationFailed(
                self.session, ticket, error.code, str(error), stream, number, ranks, error.peer
            )
        )

    def breaks(self, error: DlcpError) -> bool:
        """The session is over; the first reason stands. False: it was over before."""
        first = self.broken is None
        if first:
            self.broken, self.culprit = (error.code, str(error)), error.peer
        return first

    def tell_broken(self, rank: int, error: DlcpError) -> None:
        """Report that the session is over, after the failures that this caused."""
        self.events.append(SessionBroken(self.session, rank, error.code, str(error), error.peer))

    def departs(self, rank: int, error: DlcpError) -> None:
        """A peer left. Reported once no operation is left that can still succeed."""
        self.breaks(error)
        self._departure = SessionBroken(self.session, rank, error.code, str(error), error.peer)

    def departed(self, rank: int) -> bool:
        """Whether that rank has left, and this was not reported yet."""
        return self._departure is not None and self._departure.rank == rank

    def tell_departure(self) -> None:
        """Report the departure: no operation is open any more."""
        if self._departure is not None:
            self.events.append(self._departure)
            self._departure = None
