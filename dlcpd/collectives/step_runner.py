"""Runs the steps of one operation, each as soon as the steps that it waits for are done."""

from collections import deque
from dataclasses import dataclass

from dlcpd.collectives.buffers import Buffers
from dlcpd.collectives.client_steps import ClientSteps
from dlcpd.collectives.local_steps import LocalSteps
from dlcpd.collectives.progress import Progress
from dlcpd.collectives.receives import Receives
from dlcpd.collectives.replica_digest import ReplicaDigest
from dlcpd.collectives.sends import Sends
from dlcpd.core.session.stream_ids import OperationId
from dlcpd.core.trace import Trace
from dlcpd.schedules.model import NOT_REPLICATED, Compute, Decode, Encode, Receive, Send


@dataclass(slots=True, eq=False, repr=False)
class StepRunner:
    """Begins all steps in the order that `progress` gives."""

    id: OperationId
    progress: Progress
    buffers: Buffers
    sends: Sends
    receives: Receives
    local: LocalSteps
    client: ClientSteps
    replica: ReplicaDigest | None  # if a digest of the result is kept
    trace: Trace  # of the engine
    session: int  # number, for the trace

    def start(self) -> None:
        """Begin all steps that wait for no other."""
        self._advance(self.progress.first())

    def done(self, position: int) -> None:
        """A transfer, or a step of the client, is done: begin the steps that waited for it."""
        if ready := self._close(position):
            self._advance(ready)

    def _advance(self, ready: list[int]) -> None:
        """Begin steps, and the followers of those that are done at once."""
        steps = deque(ready)
        while steps:
            position = steps.popleft()
            if self._begin(position):
                steps.extend(self._close(position))

    def _begin(self, position: int) -> bool:
        """Begin a step that waits for no other. True: it is done."""
        step = self.progress.program.steps[position]
        if isinstance(step, Send):
            return self.sends.begin(position, step)
        if isinstance(step, Receive):
            return self.receives.unstage(position, step)
        if isinstance(step, Compute):
            self.client.begin(position, step)
            return False
        if isinstance(step, Encode | Decode):
            self.local.change_form(step)
            return True
        trace = self.trace
        since = trace.microseconds() if trace.on else None
        self.local.reduce(position, step)
        if since is not None:
            trace.note("reduced", self.session, self.id, since, step.target.size)
        return True

    def _close(self, position: int) -> list[int]:
        """Mark a step as done. Returns the steps that now wait for no other."""
        program = self.progress.program
        for number in program.touched[position]:
            self.buffers.release(number)
        step = program.steps[position]
        if self.replica is not None and not isinstance(step, Send) and step.piece != NOT_REPLICATED:
            self.replica.add(step)
        return self.progress.close(position)
