"""Recognises the newest datagram of a peer by the time stamps that datagrams carry.

A repeated or overtaken datagram carries an older stamp: it says nothing new.
"""

from dataclasses import dataclass
from typing import Final

WRAP: Final = 1 << 32  # of time stamps, in microseconds: 71 minutes
# Seconds by which a stamp may exceed the time that has passed here since the last one, which may
# have waited longer in some queue. An older stamp looks like one far ahead, and is refused as such
# unless the peer has been silent for nearly all of WRAP.
MAX_AHEAD: Final = 60.0


def microseconds(now: float) -> int:
    """`now` in the unit and width of `sent_at`."""
    return int(now * 1e6) % WRAP


@dataclass
class Newest:
    """The newest stamp so far, and when it came here. 0 = none."""

    stamp: int = 0
    at: float = 0.0

    def see(self, stamp: int, at: float) -> bool:
        """Whether `stamp`, which came at `at`, is not older than all before. False for 0, no
        stamp."""
        ahead = (stamp - self.stamp) % WRAP
        if not stamp or (self.stamp and ahead > (at - self.at + MAX_AHEAD) * 1e6):
            return False
        self.stamp, self.at = stamp, at
        return True
