"""Order in time of the steps of all ranks, as far as their programs determine it.

Every step has a begin and an end. Bytes of a transfer may arrive once its Send and its Receive
have begun; it ends first at the receiver, then at the sender.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dlcpd.schedules.model import Program, Receive, Send, Transfer

Node = tuple[int, int]  # rank, position


@dataclass(slots=True, eq=False)
class PartialOrder:
    """For every moment (a begin or an end), the set of moments before it, as bits of an int.

    Every transfer of `programs` must have both of its ends.
    """

    programs: Sequence[Program]
    stuck: list[Node] = field(default_factory=list)  # steps in, or behind, a circle of waiting
    _numbers: dict[Node, int] = field(default_factory=dict)  # of a step's begin; its end is next
    _before: list[int] = field(default_factory=list)
    _implied_by: dict[Node, list[Node]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for rank, program in enumerate(self.programs):
            for position in range(len(program.steps)):
                self._numbers[rank, position] = 2 * len(self._numbers)
        self._before = [0] * (2 * len(self._numbers))
        self._fill()

    def ended_before(self, earlier: Node, later: Node) -> bool:
        """Whether `earlier` has ended, and its rank can know it, when `later` begins."""
        if self._is_before(self._numbers[earlier] + 1, later):
            return True
        return any(
            receive == later or self._is_before(self._numbers[receive], later)
            for receive in self._implied_by.get(earlier, ())
        )

    def other_end(self, node: Node) -> Node:
        """The Receive of a Send, or the Send of a Receive."""
        rank, position = node
        step = self.programs[rank].steps[position]
        assert isinstance(step, Transfer)  # noqa: S101  # no other step has another end
        there = self.programs[step.peer]
        ends = there.receives if isinstance(step, Send) else there.sends
        return step.peer, ends[rank, step.index]

    def _is_before(self, moment: int, node: Node) -> bool:
        return bool(self._before[self._numbers[node]] >> moment & 1)

    def _fill(self) -> None:
        followers: list[list[int]] = [[] for _ in self._before]
        waits = [0] * len(self._before)
        for first, second in self._edges():
            followers[first].append(second)
            waits[second] += 1
        ready = [moment for moment, count in enumerate(waits) if not count]
        while ready:
            moment = ready.pop()
            past = self._before[moment] | 1 << moment
            for follower in followers[moment]:
                self._before[follower] |= past
                waits[follower] -= 1
                if not waits[follower]:
                    ready.append(follower)
        self.stuck = [node for node, begin in self._numbers.items() if waits[begin + 1]]

    def _edges(self) -> Iterator[tuple[int, int]]:
        for node, begin in self._numbers.items():
            rank, position = node
            step = self.programs[rank].steps[position]
            yield begin, begin + 1
            for earlier in step.after:
                yield self._numbers[rank, earlier] + 1, begin
            if isinstance(step, Send):
                there = self._numbers[self.other_end(node)]
                yield begin, there
                yield there + 1, begin + 1
            elif isinstance(step, Receive):
                for send in step.implies:
                    self._implied_by[rank, send].append(node)
