"""The order of the steps of one program: a step may begin when the steps before it are done."""

from dataclasses import dataclass, field

from dlcpd.schedules.model import Program, Send, holds


@dataclass(slots=True, eq=False)
class Progress:
    """The steps of one program that are not done. A step is named by its position."""

    program: Program
    open: set[int] = field(init=False)  # steps that are not done
    waits: list[int] = field(init=False)  # by step: number of open steps that it waits for
    results: int = field(init=False)  # open steps other than sends
    holding: int = field(init=False)  # open sends from the caller's memory
    _held: dict[int, tuple[int, ...]] = field(default_factory=dict)  # by send; see `hold`

    def __post_init__(self) -> None:
        program = self.program
        self.open, self.waits = set(range(len(program.steps))), list(program.waits)
        self.results, self.holding = program.results, program.holding

    def first(self) -> list[int]:
        """Steps that wait for no other."""
        return [position for position, waits in enumerate(self.waits) if not waits]

    def hold(self, send: int) -> None:
        """The receives that imply an open send wait for its end, too: until then its values must
        stay where the result goes. Call it before any of them can arrive."""
        receives = self.program.implied_by.get(send, ())
        if receives:
            self._held[send] = receives
            for position in receives:
                self.waits[position] += 1

    def close(self, position: int) -> list[int]:
        """Mark an open step as done. Returns the steps that now wait for no other."""
        self.open.remove(position)
        step = self.program.steps[position]
        if isinstance(step, Send):
            self.holding -= holds(step)
        else:
            self.results -= 1
        ready, waits = [], self.waits
        for follower in (*self.program.followers[position], *self._held.pop(position, ())):
            waits[follower] -= 1
            if not waits[follower]:
                ready.append(follower)
        return ready
