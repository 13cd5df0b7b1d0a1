"""How much all peers together may have in flight towards this host: twice what it takes in.

The receiver's own link is where many senders meet, and only it knows how many they are. It
grants them shares of two bandwidth-delay products, as measured (as BBR sizes a window, for
all senders together), so that their first bursts do not overrun the last port's buffer.
"""

from dataclasses import dataclass
from typing import Final

INITIAL: Final = 1 << 20  # bytes, before anything has been measured: 1 ms of 8 Gb/s
LEAST: Final = 64 << 10  # bytes; a burst of one sender
GAIN: Final = 2.0  # bandwidth-delay products: one on its way, one queued or in our hands
LEAST_DELAY: Final = 2e-3  # seconds; two busy engines may take as long to answer
GAP: Final = 5e-3  # seconds without data after which what follows is measured anew
SPAN: Final = 10e-3  # seconds of a measurement; bursts even out
MEMORY: Final = 5.0  # seconds; the best of the last one or two such spans counts


@dataclass(slots=True)
class ArrivalRate:
    """Bytes per second that this host has taken in while data came without a gap."""

    _begin: float = 0.0
    _last: float = -1.0
    _bytes: int = 0
    _best: float = 0.0  # of this memory span
    _former: float = 0.0  # of the one before
    _since: float = 0.0

    def on_bytes(self, size: int, now: float) -> None:
        """Data came."""
        if now - self._last > GAP:
            self._begin, self._bytes = now, 0
        else:
            self._bytes += size
        self._last = now
        if now - self._begin >= SPAN:
            self._best = max(self._best, self._bytes / (now - self._begin))
            self._begin, self._bytes = now, 0
        if now - self._since >= MEMORY:
            self._former, self._best, self._since = self._best, 0.0, now

    @property
    def best(self) -> float:
        """0 = not measured yet."""
        return max(self._best, self._former)

    def budget(self, delay: float) -> int:
        """Bytes for all senders together; `delay`: seconds of a round trip, hosts included."""
        if not self.best:
            return INITIAL
        return max(int(GAIN * self.best * max(delay, LEAST_DELAY)), LEAST)
