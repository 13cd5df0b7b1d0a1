"""Totals of a session's operations: counts that only grow, and durations."""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from dlcpd.core.session.events import Stats

# Seconds; upper ends of the histogram's buckets. From the shortest all-reduce within a host to the
# time after which a waiting client warns; a last bucket holds longer ones.
BUCKETS: Final = (
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
WEIGHT: Final = 1 / 16  # of the newest bounded operation in `used`: about one step of a large model


@dataclass(slots=True)
class Totals:
    """Of one session, over its life. Segments as in `Stats`."""

    seconds: float = 0.0  # that completed operations took, from their start to their result
    took: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))  # by bucket
    sent: int = 0
    retransmitted: int = 0
    waived: int = 0
    allowed: int = 0
    reapplied: int = 0
    lost: int = 0
    energy: float = 0.0  # fractions of the contributions' energy, added up
    used: float = 0.0  # waived / allowed of bounded operations, smoothed; 1: the whole allowance
    failed: Counter[str] = field(default_factory=Counter)  # operations by code

    def complete(self, stats: Stats, seconds: float) -> None:
        """One more operation has its result."""
        self.seconds += seconds
        self.took[bisect_left(BUCKETS, seconds)] += 1
        self.sent += stats.sent
        self.retransmitted += stats.retransmitted
        self.waived += stats.waived
        self.allowed += stats.allowed
        self.reapplied += stats.reapplied
        self.lost += stats.lost
        self.energy += stats.energy
        if stats.allowed:
            self.used += WEIGHT * (stats.waived / stats.allowed - self.used)

    def add(self, other: "Totals") -> None:
        """Add the counts of another session; `used` is of one session alone."""
        self.seconds += other.seconds
        self.took = [a + b for a, b in zip(self.took, other.took, strict=True)]
        self.sent += other.sent
        self.retransmitted += other.retransmitted
        self.waived += other.waived
        self.allowed += other.allowed
        self.reapplied += other.reapplied
        self.lost += other.lost
        self.energy += other.energy
        self.failed.update(other.failed)

    def report(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "seconds": self.seconds,
            "took": list(self.took),
            "sent": self.sent,
            "retransmitted": self.retransmitted,
            "waived": self.waived,
            "allowed": self.allowed,
            "reapplied": self.reapplied,
            "lost": self.lost,
            "energy": self.energy,
            "used": self.used,
            "failed": dict(self.failed),
        }
