"""How much of the time that passes this process is given: silence of a peer counts only then."""

import math
from dataclasses import dataclass
from typing import Final

JITTER: Final = 0.05  # seconds; what a busy loop or a scheduler's turn takes is no excuse
COUNTED: Final = 0.25  # fraction of a late stretch that counts all the same, and
MOST_COUNTED: Final = 0.05  # seconds of it at most: so a process that is always late finds a dead
# peer in the end, and one that slept for an hour has heard 0.05 s of silence


@dataclass(slots=True)
class OwnTime:
    """Measures how late this process is for what was due."""

    excused: float = 0.0  # seconds so far
    _woke: float = -math.inf  # the last time that it looked

    def wake(self, due: float | None, now: float) -> float:
        """The process runs at `now`; the first thing to do was due at `due`, None: nothing was.

        Returns the seconds until `now` in which it could not listen: the silence of its peers in
        these proves nothing.
        """
        late = 0.0 if due is None else now - max(due, self._woke)
        self._woke = now
        if late <= JITTER:
            return 0.0
        excused = late - min(COUNTED * late, MOST_COUNTED)
        self.excused += excused
        return excused
