"""Measures time in which this process did not run: silence of a peer does not count then."""

import math
from dataclasses import dataclass
from typing import Final

JITTER: Final = 0.05  # seconds; shorter delays, of a busy loop or the scheduler, are not excused
COUNTED: Final = 0.25  # fraction of a delay that counts as silence nevertheless, and
MOST_COUNTED: Final = 0.05  # seconds of it at most: so a process that is always late detects a dead
# peer in the end, and one that slept for an hour has heard 0.05 s of silence


@dataclass(slots=True)
class OwnTime:
    """Measures how late this process handles its timers."""

    excused: float = 0.0  # seconds so far
    _woke: float = -math.inf  # the last time that it looked

    def wake(self, due: float | None, now: float) -> float:
        """The process runs at `now`; its first timer was due at `due`, None: there was none.

        Returns the seconds until `now` in which it could not listen: the silence of peers in these
        proves nothing.
        """
        late = 0.0 if due is None else now - max(due, self._woke)
        self._woke = now
        if late <= JITTER:
            return 0.0
        excused = late - min(COUNTED * late, MOST_COUNTED)
        self.excused += excused
        return excused
