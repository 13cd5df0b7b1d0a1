"""The steps of one operation that its client computes, between Due and Computed."""

from dataclasses import dataclass

from dlcpd.core.session.outcomes import Outcomes
from dlcpd.core.session.stream_ids import OperationId
from dlcpd.core.trace import Trace
from dlcpd.schedules.model import Compute


@dataclass(slots=True, eq=False)
class ClientSteps:
    """Reports steps that are due, and takes the client's answers."""

    id: OperationId
    ticket: int  # the client's number for the operation
    outcomes: Outcomes  # of the session
    trace: Trace  # of the engine
    due: dict[int, Compute]  # steps without an answer, by position in the program; shared

    def begin(self, position: int, step: Compute) -> None:
        """The client may compute a step: the engine uses its bytes again after `computed`."""
        self.due[position] = step
        self.outcomes.due(self.ticket, position, step.target.start, step.target.size)
        self._note("due", step)

    def computed(self, position: int) -> bool:
        """The client answers. False: that step is not due."""
        step = self.due.pop(position, None)
        if step is not None:
            self._note("computed", step)
        return step is not None

    def _note(self, what: str, step: Compute) -> None:
        if self.trace.on:
            span = step.target
            self.trace.note(what, self.outcomes.session, self.id, span.start, span.size)
