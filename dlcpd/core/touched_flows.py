"""The flows with something to tell since the last visit, divided by where their peers are."""

from dataclasses import dataclass, field

from dlcpd.core.session.agenda import Agenda
from dlcpd.core.session.flow import Flow


@dataclass(slots=True, eq=False, repr=False)
class TouchedFlows:
    """Flows to ranks of this process, and flows to other processes, by index."""

    agenda: Agenda
    flows: dict[int, Flow]  # all of the endpoint
    here: dict[int, Flow] = field(default_factory=dict)  # touched, peer in this process
    there: dict[int, Flow] = field(default_factory=dict)  # touched, peer in another process

    def sort(self) -> None:
        """Divide the flows that were touched since the last call."""
        for index in self.agenda.touched:
            if (flow := self.flows.get(index)) is not None:
                (self.there if flow.twin is None else self.here)[index] = flow
        self.agenda.touched.clear()

    def take_here(self, turn: int) -> list[Flow]:
        """Remove and return the flows to ranks of this process; each `turn` begins with another
        one."""
        self.sort()
        flows = [self.here[index] for index in sorted(self.here)]
        self.here.clear()
        first = turn % max(len(flows), 1)
        return flows[first:] + flows[:first]

    def forget(self, index: int) -> None:
        """A flow has ended."""
        self.here.pop(index, None)
        self.there.pop(index, None)
