"""Medians with their spread, and the bandwidths that nccl-tests defines. Pure.

A figure without a measurement is the error NotMeasured, never a ZeroDivisionError or an IndexError:
dlcp_lab.report.measured makes a row of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import Final, Self, TypeVar

from dlcpd.contract.errors import DlcpError

T = TypeVar("T")

# 0.99 quantiles of Student's t, by degrees of freedom.
_T99: Final = {1: 31.821, 2: 6.965, 3: 4.541, 4: 3.747, 5: 3.365, 6: 3.143, 7: 2.998}


class NotMeasured(DlcpError):
    """A figure that no measurement supports; the text is the reason."""

    code = "not_measured"


def percentile(values: Sequence[float], q: float) -> float:
    """The q-quantile (0..1) of sorted or unsorted `values`, linear between neighbours.

    Raises: NotMeasured without values.
    """
    ranked = sorted(some(values))
    at = q * (len(ranked) - 1)
    low = int(at)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (ranked[high] - ranked[low]) * (at - low)


def median(values: Sequence[float]) -> float:
    """The middle value. Raises: NotMeasured without values."""
    return percentile(values, 0.5)


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean. Raises: NotMeasured without values."""
    return fmean(some(values))


def least(values: Sequence[float]) -> float:
    """The smallest value. Raises: NotMeasured without values."""
    return min(some(values))


def most(values: Sequence[float]) -> float:
    """The largest value. Raises: NotMeasured without values."""
    return max(some(values))


def quotient(dividend: float, divisor: float, zero: str = "a duration of 0 s") -> float:
    """dividend / divisor. Raises: NotMeasured with the reason `zero` if the divisor is 0."""
    if not divisor:
        raise NotMeasured(zero)
    return dividend / divisor


def some(values: Sequence[T], what: str = "sample") -> Sequence[T]:
    """`values`. Raises: NotMeasured if there are none; `what` names one."""
    if not values:
        raise NotMeasured(f"no {what}")
    return values


@dataclass(frozen=True, slots=True)
class Spread:
    """Percentiles of a sample, in its unit."""

    p10: float
    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Percentiles of a sample. Raises: NotMeasured if it is empty."""
        return cls(*(percentile(values, q) for q in (0.1, 0.5, 0.9, 0.99)))


@dataclass(frozen=True, slots=True)
class Sample:
    """Values of one quantity. Each percentile raises NotMeasured if there are none."""

    values: Sequence[float]

    @property
    def p50(self) -> float:
        """The median."""
        return percentile(self.values, 0.5)

    @property
    def p99(self) -> float:
        """The 99th percentile."""
        return percentile(self.values, 0.99)


def pairs(one: Sequence[T], other: Sequence[T]) -> list[tuple[T, T]]:
    """Samples of the same rounds. Raises: NotMeasured if a sample has no partner."""
    if len(one) != len(other):
        raise NotMeasured(f"{len(one)} samples against {len(other)}")
    return list(zip(one, other, strict=True))


def ratios(reference: Sequence[float], measured: Sequence[float]) -> Spread:
    """`reference` / `measured`, pair by pair; above 1 `measured` is faster.

    Raises: NotMeasured without pairs, if a sample has no partner, or if a time of `measured` is 0.
    """
    return Spread.of([quotient(a, b) for a, b in pairs(reference, measured)])


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
    """Tensor bytes per second, in GB/s (10**9), as nccl-tests' algbw. Raises: NotMeasured."""
    return quotient(size, seconds) / 1e9


def bus_bandwidth(size: int, seconds: float, ranks: int) -> float:
    """Least load of each link, GB/s: algbw * 2(n-1)/n, as nccl-tests' busbw of all-reduce."""
    return algorithm_bandwidth(size, seconds) * 2 * (ranks - 1) / ranks
