"""The steps of one operation that its engines leave to this client, until they are computed."""

from dataclasses import dataclass, field

from dlcpd.contract.messages import Due


@dataclass(slots=True)
class DueSteps:
    """Steps by engine and number. Guarded by the lock of the table of operations.

    A reader that is interrupted reads a frame twice, and no step may be computed twice: so a step
    that was taken stays known.
    """

    _due: dict[tuple[int, int], Due] = field(default_factory=dict)  # not taken; oldest first
    _taken: set[tuple[int, int]] = field(default_factory=set)

    def __bool__(self) -> bool:
        """Whether a step waits for this client."""
        return bool(self._due)

    def add(self, engine: int, due: Due) -> None:
        """An engine asks for a step. Idempotent."""
        if (engine, due.step) not in self._taken:
            self._due[engine, due.step] = due

    def take(self) -> tuple[int, Due] | None:
        """The engine and the step that has waited longest; None: there is none. The caller computes
        it and answers."""
        if not self._due:
            return None
        key = next(iter(self._due))
        self._taken.add(key)
        return key[0], self._due.pop(key)
