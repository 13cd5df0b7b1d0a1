"""Events in virtual time. Events of the same time happen in the order in which they were added."""

import heapq
import math
from collections.abc import Callable
from typing import Any

Action = Callable[[Any], None]


class Calendar:
    """A clock, and the events that are due."""

    def __init__(self, now: float) -> None:
        self.now = now  # seconds
        self.handled = 0  # events so far
        self._heap: list[tuple[float, int, Action, Any]] = []
        self._added = 0

    def add(self, at: float, action: Action, subject: Any = None) -> None:
        """`action(subject)` is due at `at`, or now if that is past."""
        self._added += 1
        heapq.heappush(self._heap, (at, self._added, action, subject))

    @property
    def next_at(self) -> float:
        """Time of the next event; infinite: there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def step(self) -> None:
        """Handle the next event."""
        at, _, action, subject = heapq.heappop(self._heap)
        self.now = max(self.now, at)
        self.handled += 1
        action(subject)
