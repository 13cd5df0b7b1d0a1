"""The flows with something to do, so that a wake-up does not visit the others.

A host of a large job has thousands of flows, and a wake-up is about a few of them.
"""

from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Agenda:
    """Indices of flows; all flows of an endpoint share one."""

    touched: set[int] = field(default_factory=set)  # since the last visit, may have something to
    # tell, or to pass on to a rank of this process
    sending: dict[int, None] = field(default_factory=dict)  # have data to send, in the order in
    # which they began
    expecting: set[int] = field(default_factory=set)  # their peers have data to send to this rank
    short: set[tuple[int, int, int]] = field(default_factory=set)  # flow, stream and number of the
    # open operations in which few bytes come
    unanswered: set[int] = field(default_factory=set)  # READYs with data got no answer: their
    # datagrams may be too long for a path

    def forget(self, flow: int) -> None:
        """A flow has ended."""
        self.touched.discard(flow)
        self.sending.pop(flow, None)
        self.expecting.discard(flow)
        self.short -= {each for each in self.short if each[0] == flow}
        self.unanswered.discard(flow)
