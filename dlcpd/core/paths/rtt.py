"""Round-trip time of one path (RFC 9002 section 5)."""

from dataclasses import dataclass
from math import inf
from typing import Final

INITIAL_RTT: Final = 1e-3  # seconds, before the first sample: a generous data-centre RTT
MIN_RTO: Final = 4e-3  # seconds; below this, scheduling of a busy host looks like loss
LEAST_MARGIN: Final = 3e-3  # seconds above the smoothed RTT of a long path, where one timer that
# expires too early costs much: a peer holds answers for up to 2 ms
MAX_RTO: Final = 0.2  # seconds; keeps a backed-off timer well inside the peer timeout
MAX_ROUND_TRIPS: Final = 1.5  # minimum RTTs, where they take longer: answers come after one
LONGEST_RTO: Final = 1.0  # seconds; on any path
LONG: Final = MIN_RTO  # seconds, minimum RTT of a long path: a lost answer costs most there
LEAST_REORDERING: Final = 2e-4  # seconds
MOST_REORDERING: Final = 5e-3  # seconds


@dataclass
class Rtt:
    """Smoothed estimates, seconds."""

    smoothed: float = INITIAL_RTT
    variation: float = INITIAL_RTT / 2
    minimum: float = float("inf")
    latest: float = INITIAL_RTT
    measured: bool = False  # there was a sample

    def update(self, sample: float) -> None:
        """One sample, seconds; the first replaces the initial guess."""
        sample = self.latest = max(sample, 1e-6)
        if not self.measured:
            self.smoothed, self.variation, self.measured = sample, sample / 2, True
        else:
            self.variation += (abs(self.smoothed - sample) - self.variation) / 4
            self.smoothed += (sample - self.smoothed) / 8
        self.minimum = min(self.minimum, sample)

    @property
    def margin(self) -> float:
        """Seconds above the smoothed round trip in which an answer is still in time."""
        least = LEAST_MARGIN if LONG <= self.minimum < inf else 0.0
        return max(4 * self.variation, least, MIN_RTO - self.smoothed)

    def timeout(self, attempt: int = 0) -> float:
        """Seconds to wait for an answer. Doubles with every attempt but the first: that one costs a
        datagram of a hundred bytes, and a single loss is no sign of congestion."""
        base = self.smoothed + self.margin
        most = max(MAX_RTO, MAX_ROUND_TRIPS * self.minimum) if self.measured else MAX_RTO
        return min(base * 2.0 ** min(max(attempt - 1, 0), 16), most, LONGEST_RTO)

    @property
    def reordering(self) -> float:
        """Seconds of quiet after which a hole is a loss and not reordering."""
        return min(max(self.smoothed / 2, LEAST_REORDERING), MOST_REORDERING)
