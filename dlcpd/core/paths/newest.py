"""Which of a peer's datagrams were sent after all others, by the time stamps that they carry.

What is sent once more, or has been overtaken, carries an older one: it says nothing new.
"""

from dataclasses import dataclass
from typing import Final

WRAP: Final = 1 << 32  # of time stamps, in microseconds: 71 minutes
# Seconds that a stamp may be ahead of the time that has passed here since the one before: that one
# may have waited longer in some queue. A stamp that is older looks like one far ahead, and is
# taken for that unless the peer has been silent for nearly all of WRAP.
MAX_AHEAD: Final = 60.0


def microseconds(now: float) -> int:
    """`now` as it travels in `sent_at`."""
    return int(now * 1e6) % WRAP


@dataclass(slots=True)
class Newest:
    """The newest stamp so far, and when it came here. 0 = none."""

    stamp: int = 0
    at: float = 0.0

    def see(self, stamp: int, at: float) -> bool:
        """Whether `stamp`, which came at `at`, is not older than all before. 0 is none."""
        ahead = (stamp - self.stamp) % WRAP
        if not stamp or (self.stamp and ahead > (at - self.at + MAX_AHEAD) * 1e6):
            return False
        self.stamp, self.at = stamp, at
        return True
