"""Detects gray paths by their loss, even where the loss bound hides it (P9)."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

SAMPLE: Final = 2000  # packets per judgement: at 0.5 % ten losses, enough to tell from none
ALARM_LOSS: Final = 0.005  # fraction; healthy Ethernet loses less by orders of magnitude
CLEAR_SHARE: Final = 0.5  # of the alarm's fraction; below it the alarm ends


class PathState(Enum):
    """Changes of a path's state; the values are counters, log events and words of reports."""

    DOWN = "path_down"  # silent while others answer: carries no data
    UP = "path_up"  # answers again
    GRAY = "path_gray"  # works, and loses too much
    CLEAR = "path_clear"  # no longer gray


@dataclass(slots=True)
class PathHealth:
    """Loss of one path, sample by sample. Two samples in a row change the verdict."""

    alarm_loss: float = ALARM_LOSS
    loss: float = 0.0  # fraction of the last sample
    gray: bool = False
    _acked: int = 0  # at the last sample
    _lost: int = 0
    _contrary: int = 0  # samples in a row that speak against the verdict

    def observe(self, acked: int, lost: int) -> PathState | None:
        """Take in the totals of a path; returns the new state if this ends a sample that changes
        it."""
        if acked - self._acked < SAMPLE:
            return None
        self.loss = max(lost - self._lost, 0) / (acked - self._acked)
        self._acked, self._lost = acked, lost
        limit = self.alarm_loss * (CLEAR_SHARE if self.gray else 1.0)
        self._contrary = self._contrary + 1 if (self.loss >= limit) != self.gray else 0
        if self._contrary < 2:
            return None
        self.gray, self._contrary = not self.gray, 0
        return PathState.GRAY if self.gray else PathState.CLEAR
