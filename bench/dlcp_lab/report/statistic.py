"""Medians with their spread, and the bandwidths that nccl-tests defines. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self


def percentile(values: Sequence[float], q: float) -> float:
    """The q-quantile (0..1) of sorted or unsorted `values`, linear between neighbours."""
    ranked = sorted(values)
    at = q * (len(ranked) - 1)
    low = int(at)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (ranked[high] - ranked[low]) * (at - low)


@dataclass(frozen=True, slots=True)
class Spread:
    """Where a sample lies. Unit of the sample."""

    p10: float
    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Of a sample that is not empty."""
        return cls(*(percentile(values, q) for q in (0.1, 0.5, 0.9, 0.99)))


def slowest(times: Sequence[Sequence[float]]) -> list[float]:
    """Per operation the time of its slowest rank; `times` is [rank][operation], seconds."""
    return [max(of_ranks) for of_ranks in zip(*times, strict=True)]


def algorithm_bandwidth(size: int, seconds: float) -> float:
    """Tensor bytes per second, in GB/s (10**9), as nccl-tests' algbw."""
    return size / seconds / 1e9


def bus_bandwidth(size: int, seconds: float, ranks: int) -> float:
    """What each link carries at least: algbw * 2(n-1)/n, as nccl-tests' busbw of all-reduce."""
    return algorithm_bandwidth(size, seconds) * 2 * (ranks - 1) / ranks
