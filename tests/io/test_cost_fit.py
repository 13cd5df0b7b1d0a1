"""CPU costs from counters of engines."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.io.cost_fit import LEAST_WINDOWS, WorkWindow, fitted
from dlcpd.schedules.network import Costs

COUNTS = st.tuples(st.integers(1, 500), st.integers(1, 20_000), st.integers(1, 2000))


def _window(costs: Costs, counts: tuple[int, int, int], noise: float = 1.0) -> WorkWindow:
    each = (costs.transfer_ns, costs.datagram_ns, costs.wake_up_ns)
    cpu = sum(cost * count for cost, count in zip(each, counts, strict=True)) * 1e-9
    return WorkWindow(cpu * noise, *counts)


@pytest.mark.parametrize("seed", range(10))
def test_costs_are_found_from_windows_with_noise(seed: int) -> None:
    """Windows of small, large and idle operations, with noise of 2 %."""
    draw = random.Random(seed)
    costs = Costs(
        draw.randint(10**4, 10**5), draw.randint(300, 3000), draw.randint(10**4, 10**5), 7
    )
    kinds = ((2000, 4000, 2000), (100, 60_000, 800), (50, 100, 4000), (3000, 3000, 300))
    windows = [
        _window(
            costs, (a + draw.randint(0, a), b + draw.randint(0, b), c), draw.uniform(0.98, 1.02)
        )
        for a, b, c in kinds * 8
    ]
    found = fitted(windows, 7)
    assert found.transfer_ns == pytest.approx(costs.transfer_ns, rel=0.1)
    assert found.datagram_ns == pytest.approx(costs.datagram_ns, rel=0.1)
    assert found.wake_up_ns == pytest.approx(costs.wake_up_ns, rel=0.1)
    assert found.latency_ns == 7


@given(st.lists(st.tuples(st.floats(0, 10), COUNTS), min_size=LEAST_WINDOWS, max_size=20))
def test_no_cost_is_negative(given_: list[tuple[float, tuple[int, int, int]]]) -> None:
    found = fitted([WorkWindow(cpu, *counts) for cpu, counts in given_], 0)
    assert min(found.transfer_ns, found.datagram_ns, found.wake_up_ns) >= 0


def test_counters_in_proportion_give_the_right_sum() -> None:
    windows = [WorkWindow(n * 1e-3, n, 10 * n, n) for n in (1, 2, 3, 4)]
    found = fitted(windows, 0)
    total = found.transfer_ns + 10 * found.datagram_ns + found.wake_up_ns
    assert total == pytest.approx(10**6, rel=1e-3)


def test_idle_windows_cost_nothing_and_too_few_are_refused() -> None:
    assert fitted([WorkWindow(0.0, 0, 0, 0)] * 3, 5) == Costs(0, 0, 0, 5)
    with pytest.raises(ValueError, match="2 windows: at least 3"):
        fitted([WorkWindow(1.0, 1, 1, 1)] * 2, 0)
