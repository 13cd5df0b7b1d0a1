"""Replay protection: a window over the counters of received datagrams (RFC 6479)."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Counters = NDArray[np.int64]

# 64 counters each. 65,536 counters are nine times the segments of 1,152 B that the default
# [network] window, 8 MiB, allows in flight over all paths and classes: datagrams further behind
# were counted as lost, and retransmitted, long ago. It costs 8 KiB per flow, 32 MiB per engine.
WORDS: Final = 1024
_PLACE: Final = WORDS - 1  # mask: counter // 64 to its word
_BIT: Final = 63  # mask: counter to its bit


class ReplayWindow:
    """Counters begin at 1. Those of the newest 1,024 words are remembered one by one, older ones
    are refused: at least the newest 65,473 can come in any order."""

    def __init__(self) -> None:
        self.newest = 0  # the highest that has come
        self._words = np.zeros(WORDS, np.uint64)
        self._words[0] = 1  # nothing is sent with counter 0

    def unseen(self, counters: Counters) -> NDArray[np.bool_]:
        """Which counters have not come, and are not older than the window. Changes nothing."""
        words, newest = counters >> 6, self.newest >> 6
        bits = self._words[words & _PLACE] >> (counters & _BIT).astype(np.uint64)
        ahead = words > newest  # their places still hold counters that are older by one window
        fresh: NDArray[np.bool_] = (words > newest - WORDS) & (ahead | (bits & np.uint64(1) == 0))
        return fresh

    def take(self, counters: Counters) -> NDArray[np.bool_]:
        """Record counters, all of which were unseen. False for repetitions within the array."""
        first = np.zeros(len(counters), bool)
        first[np.unique(counters, return_index=True)[1]] = True
        if len(counters):
            self._advance(int(counters.max()))
        kept = counters[first]
        kept = kept[kept >> 6 > (self.newest >> 6) - WORDS]
        bits = np.uint64(1) << (kept & _BIT).astype(np.uint64)
        np.bitwise_or.at(self._words, kept >> 6 & _PLACE, bits)
        return first

    def _advance(self, newest: int) -> None:
        """Clear the words that the window newly covers."""
        if newest <= self.newest:
            return
        stop = (newest >> 6) + 1
        start = max((self.newest >> 6) + 1, stop - WORDS)
        self._words[np.arange(start, stop) & _PLACE] = 0
        self.newest = newest
