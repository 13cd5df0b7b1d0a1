"""Token bucket: a hard cap on what the engine puts on the wire."""

from dataclasses import dataclass
from typing import Final

BURST: Final = 0.0003  # seconds of rate that may go out at once: too short to make a lasting queue
MIN_BURST: Final = 16 << 10  # bytes; below 65 Mb/s a burst must still hold some datagrams


@dataclass
class Pacer:
    """`rate_bps` 0 means no cap."""

    rate_bps: float
    _tokens: float = 0.0  # bytes
    _at: float = 0.0

    def allowance(self, now: float) -> int:
        """Bytes that may be sent now."""
        if not self.rate_bps:
            return 1 << 30
        earned = (now - self._at) * self.rate_bps / 8
        self._tokens = min(self._tokens + earned, self._burst)
        self._at = now
        return int(self._tokens)

    def spend(self, size: int) -> None:
        """`size` bytes went out; may overdraw by one burst."""
        if self.rate_bps:
            self._tokens -= size

    def ready_at(self, size: int, now: float) -> float:
        """When `size` bytes may be sent."""
        missing = min(size, self._burst) - self._tokens
        return now + max(missing, 0.0) / (self.rate_bps / 8) if self.rate_bps else now

    @property
    def _burst(self) -> float:
        return max(self.rate_bps / 8 * BURST, MIN_BURST)
