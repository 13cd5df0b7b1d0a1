"""Whether two forms of the simulation give the same times."""

from collections.abc import Sequence
from statistics import fmean, stdev


def agree(one: Sequence[float], other: Sequence[float]) -> None:
    """Means within 2 %, beyond the part that two samples of chance may differ by."""
    chance = 2 * ((stdev(one) ** 2 + stdev(other) ** 2) / len(one)) ** 0.5
    assert chance < 0.35 * fmean(one), "too few operations to say"
    assert abs(fmean(one) - fmean(other)) <= 0.02 * fmean(one) + chance
