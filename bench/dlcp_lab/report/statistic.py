"""Medians with their spread, and the bandwidths that nccl-tests defines. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import Final, Self

# 0.99 quantiles of Student's t, by degrees of freedom.
_T99: Final = {1: 31.821, 2: 6.965, 3: 4.541, 4: 3.747, 5: 3.365, 6: 3.143, 7: 2.998}


def percentile(values: Sequence[float], q: float) -> float:
    """The q-quantile (0..1) of sorted or unsorted `values`, linear between neighbours."""
    ranked = sorted(values)
    at = q * (len(ranked) - 1)
    low = int(at)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (ranked[high] - ranked[low]) * (at - low)


@dataclass(frozen=True, slots=True)
class Spread:
    """Percentiles of a sample, in its unit."""

    p10: float
    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Percentiles of a non-empty sample."""
        return cls(*(percentile(values, q) for q in (0.1, 0.5, 0.9, 0.99)))


def ratios(theirs: Sequence[float], ours: Sequence[float]) -> Spread:
    """`theirs` / `ours`, pair by pair; above 1 `ours` is faster."""
    return Spread.of([a / b for a, b in zip(theirs, ours, strict=True)])


def prediction_limit(samples: Sequence[float]) -> float:
    """Limit that one more draw of the same normal distribution exceeds with probability 1 %.

    mean + t(0.99, n - 1) * s * sqrt(1 + 1/n), for 2 to 8 samples. Exact for normal draws; draws of
    a distribution skewed to the right exceed it more often.
    """
    count = len(samples)
    return fmean(samples) + _T99[count - 1] * stdev(samples) * sqrt(1 + 1 / count)


def slowest(times: Sequence[Sequence[float]]) -> list[float]:
    """Time of the slowest rank per operation; `times` is [rank][operation], seconds."""
    return [max(of_ranks) for of_ranks in zip(*times, strict=True)]


def algorithm_bandwidth(size: int, seconds: float) -> float:
    """Tensor bytes per second, in GB/s (10**9), as nccl-tests' algbw."""
    return size / seconds / 1e9


def bus_bandwidth(size: int, seconds: float, ranks: int) -> float:
    """Least load of each link, GB/s: algbw * 2(n-1)/n, as nccl-tests' busbw of all-reduce."""
    return algorithm_bandwidth(size, seconds) * 2 * (ranks - 1) / ranks
