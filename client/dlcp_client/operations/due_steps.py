"""The steps of one operation that its engines leave to this client, until they are computed."""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from dlcpd.contract.messages import Due


@dataclass(slots=True)
class DueSteps:
    """Steps by engine and number. Guarded by the lock of the table of operations.

    A reader that is interrupted reads a frame twice, and no step may be computed twice: so a step
    that was taken stays known.
    """

    engines: AbstractSet[int] = frozenset()  # of the operation, once it is submitted
    _due: dict[tuple[int, int], Due] = field(default_factory=dict)  # not taken; oldest first
    _taken: set[tuple[int, int]] = field(default_factory=set)
    _steps: dict[int, int] = field(default_factory=dict)  # by engine: all that it leaves to us

    def __bool__(self) -> bool:
        """Whether a step waits for this client."""
        return bool(self._due)

    @property
    def all_due(self) -> bool:
        """Whether each step has been due, taken or not."""
        if not self._steps or not self.engines <= self._steps.keys():
            return False
        return len(self._due) + len(self._taken) == sum(self._steps.values())

    @property
    def all_taken(self) -> bool:
        """Whether each step was taken."""
        return not self._due and self.all_due

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Bytes [start, stop) of the steps that wait for this client."""
        for due in self._due.values():
            yield due.start, due.start + due.size

    def add(self, engine: int, due: Due) -> None:
        """An engine asks for a step, or says that it will ask for none. Idempotent."""
        self._steps[engine] = due.steps
        if due.steps and (engine, due.step) not in self._taken:
            self._due[engine, due.step] = due

    def take(self) -> tuple[int, Due] | None:
        """The engine and the step that has waited longest; None: there is none. The caller computes
        it and answers."""
        if not self._due:
            return None
        key = next(iter(self._due))
        self._taken.add(key)
        return key[0], self._due.pop(key)
