"""The steps of one operation that its client computes, between Due and Computed."""

from dataclasses import dataclass

from dlcpd.contract.errors import ComputationFailed
from dlcpd.core.session.session import Session
from dlcpd.core.session.stream_ids import OperationId
from dlcpd.schedules.model import Compute


@dataclass(slots=True, eq=False, repr=False)
class ClientSteps:
    """Reports steps that are due, and takes the client's answers."""

    id: OperationId
    ticket: int  # the client's number for the operation
    session: Session
    due: dict[int, Compute]  # steps without an answer, by position in the program; shared
    steps: int  # of the operation that the client computes

    def tell_none(self) -> None:
        """The client computes no part of the operation."""
        self.session.outcomes.due(self.ticket, 0, 0, 0, steps=0)

    def begin(self, position: int, step: Compute) -> None:
        """The client may compute a step: the engine uses its bytes again after `computed`."""
        self.due[position] = step
        span = step.target
        self.session.outcomes.due(self.ticket, position, span.start, span.size, steps=self.steps)
        self._note("due", step)

    def computed(self, position: int) -> Compute | None:
        """The client answers. Returns the step; None: it is not due."""
        step = self.due.pop(position, None)
        if step is not None:
            self._note("computed", step)
        return step

    def _note(self, what: str, step: Compute) -> None:
        trace, span = self.session.trace, step.target
        if trace.on:
            trace.note(what, self.session.number, self.id, span.start, span.size)


def computation_failed(label: str, rank: int, step: Compute, error: str) -> ComputationFailed:
    """The failure of an operation whose step the client of `rank` could not compute."""
    start, stop = step.target.start, step.target.start + step.target.size
    return ComputationFailed(
        f"{label}: the trainer of rank {rank} could not compute bytes {start}..{stop}: {error}"
    )
