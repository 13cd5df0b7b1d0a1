import numpy as np
import pytest

from dlcp_lab.report.statistic import (
    Spread,
    algorithm_bandwidth,
    bus_bandwidth,
    percentile,
    prediction_limit,
    slowest,
)


@pytest.mark.parametrize("count", [1, 2, 3, 10, 101])
@pytest.mark.parametrize("q", [0.0, 0.1, 0.5, 0.9, 0.99, 1.0])
def test_percentile_is_numpys(count: int, q: float) -> None:
    values = np.random.default_rng(count).standard_normal(count).tolist()
    assert percentile(values, q) == pytest.approx(np.quantile(values, q))


def test_spread() -> None:
    assert Spread.of([float(x) for x in range(101)]) == Spread(10, 50, 90, 99)


def test_the_slowest_rank_counts() -> None:
    assert slowest([[1.0, 5.0, 3.0], [2.0, 4.0, 3.0]]) == [2.0, 5.0, 3.0]


def test_ranks_with_different_numbers_of_samples_are_a_bug() -> None:
    with pytest.raises(ValueError, match="argument"):
        slowest([[1.0], [1.0, 2.0]])


@pytest.mark.parametrize(("ranks", "factor"), [(2, 1.0), (4, 1.5), (8, 1.75)])
def test_bandwidths_are_those_of_nccl_tests(ranks: int, factor: float) -> None:
    assert algorithm_bandwidth(2 * 10**9, 0.5) == pytest.approx(4.0)
    assert bus_bandwidth(2 * 10**9, 0.5, ranks) == pytest.approx(4.0 * factor)


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_one_more_draw_exceeds_the_prediction_limit_with_a_chance_of_one_percent(
    count: int,
) -> None:
    trials = 4000
    draws = np.random.default_rng(count).normal(5.0, 2.0, (trials, count + 1))
    beyond = sum(row[-1] > prediction_limit(row[:-1].tolist()) for row in draws)
    # Binomial(4000, 0.01): a standard deviation is 6.3.
    assert 40 - 28 < beyond < 40 + 28


def test_a_limit_needs_two_samples() -> None:
    with pytest.raises(KeyError):
        prediction_limit([1.0])
