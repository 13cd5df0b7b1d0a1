"""Events of operations for a timeline, kept in memory while recording is on.

Callers look at `on` first, so that an unused recording costs one look. Time comes from the owner's
clock, since a wake-up of the engine takes longer than its work for one operation: nothing but the
recording depends on it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

# Per recording: a tuple of nine small values takes some 300 B, so 20 MB. A step that reduces 64 MB
# between two hosts has some 300 events, so this holds 200 steps.
MAX_EVENTS: Final = 1 << 16
MAX_NAME: Final = 64  # characters of a tensor's name
NO_OPERATION: Final = (0, 0, 0)
# microseconds of the clock; what; session; stream on the wire, its peer, number; then what the kind
# of event brings: docs/trace.md
Event = tuple[Any, ...]


@dataclass(slots=True)
class Trace:
    """Events in their order. `clock`: seconds, the one that the owner passes on as `now`."""

    clock: Callable[[], float] = float  # 0.0
    on: bool = False
    full: bool = False  # recording ended because there was no more room
    steps: int = 0  # complete steps, of the session with the most
    _events: list[Event] = field(default_factory=list)
    _first: dict[int, str] = field(default_factory=dict)  # by session: the name that begins a step
    _begun: dict[int, int] = field(default_factory=dict)  # by session: steps

    def __len__(self) -> int:
        return len(self._events)

    def start(self) -> None:
        """Clear the events and start recording."""
        self._clear()
        self.on = True

    def stop(self) -> None:
        """Stop recording; the events stay."""
        self.on = False

    def forget(self) -> None:
        """Stop recording and clear the events."""
        self.on = False
        self._clear()

    def take(self, most: int) -> list[Event]:
        """Remove and return the oldest events, at most `most`."""
        taken = list(islice(self._events, most))
        del self._events[:most]
        if not self._events and not self.on:
            self._clear()
        return taken

    def _clear(self) -> None:
        self.full, self.steps = False, 0
        self._events, self._first, self._begun = [], {}, {}

    def microseconds(self) -> int:
        """The clock's time now."""
        return int(self.clock() * 1e6)

    def note(
        self, what: str, session: int, operation: tuple[int, int, int], *more: int | str
    ) -> None:
        """Record an event of an operation; call it only while `on`."""
        self._events.append((self.microseconds(), what, session, *operation, *more))
        if len(self._events) >= MAX_EVENTS:
            self.on, self.full = False, True

    def submitted(
        self, session: int, operation: tuple[int, int, int], name: str, *more: int | str
    ) -> None:
        """An operation has begun. A step begins where the first name of a session comes again."""
        name = name[:MAX_NAME]
        if name == self._first.setdefault(session, name):
            begun = self._begun[session] = self._begun.get(session, 0) + 1
            self.steps = max(self.steps, begun - 1)
        self.note("submitted", session, operation, name, *more)
