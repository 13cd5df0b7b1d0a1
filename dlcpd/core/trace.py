"""What happened to operations, for a timeline: events in memory, while somebody has asked for them.

Whoever notes something looks at `on` first, so that a recording that nobody asked for costs one
look. Time comes from the owner's clock, since a wake-up of the engine takes longer than what it
does for one operation: nothing but the recording depends on it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

# Of one recording: a tuple of nine small values takes some 300 B, so 20 MB. A step that reduces 64
# MB between two hosts has some 300 events, so this holds 200 of them.
MAX_EVENTS: Final = 1 << 16
MAX_NAME: Final = 64  # characters of a tensor's name
NO_OPERATION: Final = (0, 0, 0)
# microseconds of the clock; what; session; stream on the wire, its peer, number; and what the kind
# of event brings: docs/trace.md
Event = tuple[Any, ...]


@dataclass(slots=True)
class Trace:
    """Events in their order. `clock`: seconds, the one that the owner passes on as `now`."""

    clock: Callable[[], float] = float  # 0.0
    on: bool = False
    full: bool = False  # it ended because there was no more room
    steps: int = 0  # that are complete, of the session that has most
    _events: list[Event] = field(default_factory=list)
    _first: dict[int, str] = field(default_factory=dict)  # by session: the name that begins a step
    _begun: dict[int, int] = field(default_factory=dict)  # by session: steps

    def __len__(self) -> int:
        return len(self._events)

    def start(self) -> None:
        """Forget what there is, and record from now on."""
        self._clear()
        self.on = True

    def stop(self) -> None:
        """Record no more; what there is stays."""
        self.on = False

    def forget(self) -> None:
        """Record no more, and keep nothing."""
        self.on = False
        self._clear()

    def take(self, most: int) -> list[Event]:
        """The oldest events that have not been taken, and forget them."""
        taken = list(islice(self._events, most))
        del self._events[:most]
        if not self._events and not self.on:
            self._clear()
        return taken

    def _clear(self) -> None:
        self.full, self.steps = False, 0
        self._events, self._first, self._begun = [], {}, {}

    def microseconds(self) -> int:
        """Of the clock, now."""
        return int(self.clock() * 1e6)

    def note(
        self, what: str, session: int, operation: tuple[int, int, int], *more: int | str
    ) -> None:
        """An event of an operation; only while it is `on`."""
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
