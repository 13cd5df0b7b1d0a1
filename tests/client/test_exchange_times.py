"""Times of bounded and exact exchanges: the comparison is of equal operations, and claims nothing
that chance explains."""

import random
from collections.abc import Iterable

import pytest

from dlcp_client.report.exchange_times import (
    KEPT_BOUNDED,
    KEPT_EXACT,
    MAX_OPERATIONS,
    MIN_STEPS,
    ExchangeComparison,
    ExchangeTimes,
    deviations,
)

LARGE = ("a", 1 << 22)
SMALL = ("b", 1 << 20)


def add(
    times: ExchangeTimes, seconds: dict[tuple[str, int], float], *, exact: bool, timed: bool = True
) -> None:
    """A step with these operations."""
    times.begin(timed=timed, exact=exact)
    for (name, size), value in seconds.items():
        place = times.place(name, size)
        if place is not None:
            place.append(value)


def found(bounded: Iterable[float], exact: Iterable[float]) -> ExchangeComparison:
    times = ExchangeTimes()
    for mode, values in ((False, bounded), (True, exact)):
        for value in values:
            add(times, {LARGE: value}, exact=mode)
    comparison = times.compared()
    assert comparison is not None
    return comparison


def about(seconds: float, count: int, seed: int) -> list[float]:
    draw = random.Random(seed)
    return [seconds * draw.uniform(0.98, 1.02) for _ in range(count)]


def test_a_saving_is_that_of_the_medians() -> None:
    values = found([*about(0.086, 37, 1), 5.0], about(0.1, 12, 2))  # one stall moves no median
    assert values.saved == pytest.approx(0.14, abs=0.02)
    assert str(found([0.086] * 38, [*about(0.1, 11, 2), 0.1])) == (
        "bounded cut 14% of the exchange time (median of 38 bounded steps against 12 exact ones)"
    )


def test_bounded_that_took_longer_claims_no_saving() -> None:
    assert str(found([0.103] * 20, [0.1] * 6)).startswith("bounded took 3% longer")


def test_where_modes_do_not_differ_chance_makes_few_claims() -> None:
    draw, claims = random.Random(1), 0
    for _ in range(200):
        both = [draw.uniform(0.5, 1.5) for _ in range(25)]
        comparison = found(both[:20], both[20:])
        claims += comparison.sure
        if not comparison.sure:
            assert str(comparison) == (
                "bounded mode saved no exchange time beyond chance (median of 20 bounded steps "
                "against 5 exact ones)"
            )
    assert claims <= 20  # 10 are expected


def test_less_than_half_a_percent_is_no_claim() -> None:
    assert "beyond chance" in str(found([0.0999] * 20, [0.1] * 20))


def test_too_few_steps_are_said_and_none_are_silent() -> None:
    times = ExchangeTimes()
    assert times.compared() is None
    add(times, {LARGE: 1.0}, exact=False)
    assert times.compared() is None  # no exact step to compare with
    for _ in range(MIN_STEPS - 1):
        add(times, {LARGE: 2.0}, exact=True)
    few = times.compared()
    assert few is not None and not few.enough and few.saved == 0.0
    assert str(few) == (
        "too few samples to compare exchanges: 1 bounded steps and 4 exact ones, and 5 are needed"
    )


def test_only_equal_operations_are_compared() -> None:
    times = ExchangeTimes()
    for _ in range(10):
        add(times, {LARGE: 0.5, SMALL: 0.1}, exact=False)
        add(times, {LARGE: 1.0, (SMALL[0], 2 * SMALL[1]): 9.0}, exact=True)
    comparison = times.compared()
    assert comparison is not None and comparison.saved == pytest.approx(0.5)


def test_operations_of_other_names_are_no_samples() -> None:
    times = ExchangeTimes()
    for _ in range(10):
        add(times, {SMALL: 0.5}, exact=False)
        add(times, {LARGE: 1.0}, exact=True)
    comparison = times.compared()
    assert comparison is not None and not comparison.enough


def test_a_step_counts_what_has_ended_and_what_failed_does_not() -> None:
    times = ExchangeTimes()
    for _ in range(10):
        add(times, {LARGE: 1.0, SMALL: 1.0}, exact=True)
        add(times, {LARGE: 0.5}, exact=False)
        times.place(*SMALL)  # still in flight
    comparison = times.compared()
    assert comparison is not None and comparison.saved == pytest.approx(0.5)


def test_operations_that_took_no_time_are_no_division_by_zero() -> None:
    times = ExchangeTimes()
    for number in range(10):
        add(times, {LARGE: 0.0}, exact=number % 2 == 0)
    comparison = times.compared()
    assert comparison is not None and comparison.saved == 0.0
    assert deviations([], [1.0]) == 0.0


def test_exact_steps_most_of_which_took_no_time_are_no_division_by_zero() -> None:
    times = ExchangeTimes()
    steps = [*[{LARGE: 1.0, SMALL: 1.0}] * 3, *[{LARGE: 0.0}] * 2, *[{SMALL: 0.0}] * 2]
    for seconds in steps:
        add(times, seconds, exact=True)
        add(times, seconds, exact=False)
    comparison = times.compared()
    assert comparison is not None and comparison.enough and comparison.saved == 0.0


def test_memory_is_bounded_in_steps_and_in_operations() -> None:
    times = ExchangeTimes()
    many = {(str(number), 1): 1.0 for number in range(MAX_OPERATIONS + 1)}
    for _ in range(KEPT_BOUNDED + 1):
        add(times, many, exact=False)
        add(times, many, exact=True)
    assert [len(times.exact), len(times.bounded)] == [KEPT_EXACT, KEPT_BOUNDED]
    assert {len(step.operations) for step in times.bounded} == {MAX_OPERATIONS}
    comparison = times.compared()
    assert comparison is not None
    assert (comparison.bounded, comparison.exact) == (KEPT_BOUNDED, KEPT_EXACT)


def test_steps_that_are_not_timed_leave_nothing() -> None:
    times = ExchangeTimes()
    add(times, {LARGE: 1.0}, exact=False, timed=False)
    assert times.place(*LARGE) is None
    assert not times.bounded


def test_another_bound_begins_anew() -> None:
    times = ExchangeTimes()
    add(times, {LARGE: 1.0}, exact=True)
    flying = times.place(*SMALL)
    times.forget()
    assert flying is not None
    flying.append(1.0)  # ends later, and counts no more
    assert times.compared() is None


def test_ranks_of_two_samples_are_those_of_mann_and_whitney() -> None:
    # U = 9 of 9 pairs; mean 4.5, variance 9 * 7 / 12
    assert deviations([1, 2, 3], [4, 5, 6]) == pytest.approx(4.5 / (63 / 12) ** 0.5)
    assert deviations([4, 5, 6], [1, 2, 3]) == pytest.approx(-4.5 / (63 / 12) ** 0.5)
    assert deviations([1, 1], [1, 1]) == 0.0
