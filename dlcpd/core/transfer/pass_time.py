"""How long a peer's pass over a chunk takes, and thus when missing segments may be waived."""

from dataclasses import dataclass
from typing import Final

FLOOR: Final = 0.05  # seconds; ten times the longest reordering time
MARGIN: Final = 2.0  # times the duration of an unusually slow pass


@dataclass(slots=True)
class PassTime:
    """Smoothed seconds per segment, as RFC 6298 smooths round trips."""

    mean: float = 0.0  # 0 = not measured yet
    variation: float = 0.0

    def update(self, seconds: float, segments: int) -> None:
        """A pass over `segments` took `seconds` from its first arrival to its end."""
        sample = max(seconds, 1e-9) / segments
        if not self.mean:
            self.mean, self.variation = sample, sample / 2
        else:
            self.variation += (abs(self.mean - sample) - self.variation) / 4
            self.mean += (sample - self.mean) / 8

    def allowance(self, segments: int) -> float:
        """Seconds to wait, from its first arrival, for the end of a pass over `segments`. Infinite
        while unmeasured: the sender repeats END in any case."""
        if not self.mean:
            return float("inf")
        return max(FLOOR, MARGIN * segments * (self.mean + 4 * self.variation))
