"""Round trips: RFC 9002's arithmetic, and bounds that hold for any sample."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.core.paths.rtt import (
    INITIAL_RTT,
    LEAST_MARGIN,
    LONGEST_RTO,
    MAX_ROUND_TRIPS,
    MAX_RTO,
    MIN_RTO,
    Rtt,
)


def test_the_first_sample_replaces_the_guess() -> None:
    rtt = Rtt()
    assert rtt.smoothed == INITIAL_RTT
    rtt.update(0.01)
    assert (rtt.smoothed, rtt.variation, rtt.minimum) == (0.01, 0.005, 0.01)


def test_later_samples_are_weighted_as_in_rfc_9002() -> None:
    rtt = Rtt()
    rtt.update(0.010)
    rtt.update(0.018)
    assert rtt.variation == pytest.approx(0.75 * 0.005 + 0.25 * 0.008)
    assert rtt.smoothed == pytest.approx(7 / 8 * 0.010 + 1 / 8 * 0.018)
    assert rtt.minimum == 0.010


@given(st.lists(st.floats(1e-6, 2.0), min_size=1, max_size=20))
def test_the_margin_is_the_time_above_the_round_trip(samples: list[float]) -> None:
    rtt = Rtt()
    for sample in samples:
        rtt.update(sample)
    assert rtt.margin > 0
    assert rtt.timeout() <= rtt.smoothed + rtt.margin
    if rtt.timeout() < MAX_RTO:
        assert rtt.timeout() == pytest.approx(rtt.smoothed + rtt.margin)


def test_a_timeout_doubles_from_the_second_repetition_and_is_bounded() -> None:
    rtt = Rtt()
    rtt.update(0.004)
    first = rtt.timeout()
    assert first == pytest.approx(0.004 + 4 * 0.002)
    assert rtt.timeout(1) == first
    assert rtt.timeout(2) == pytest.approx(2 * first)
    assert rtt.timeout(16) == rtt.timeout(10_000) == MAX_RTO


def test_a_timeout_is_never_below_the_scheduling_noise_of_a_host() -> None:
    rtt = Rtt()
    for _ in range(100):
        rtt.update(10e-6)
    assert rtt.timeout() == MIN_RTO


@given(st.lists(st.floats(0, 5000)))
def test_any_samples_leave_sane_estimates(samples: list[float]) -> None:
    rtt = Rtt()
    for sample in samples:
        rtt.update(sample)
    assert rtt.smoothed > 0
    assert rtt.variation >= 0
    assert MIN_RTO <= rtt.timeout() <= LONGEST_RTO
    assert 2e-4 <= rtt.reordering <= 5e-3


def test_no_timeout_is_shorter_than_a_long_path() -> None:
    rtt = Rtt()
    for _ in range(100):
        rtt.update(0.25)
    assert rtt.timeout() == pytest.approx(0.25 + LEAST_MARGIN, rel=1e-3)
    assert rtt.timeout(5) == pytest.approx(MAX_ROUND_TRIPS * 0.25)
    rtt.minimum = 10.0
    assert rtt.timeout(16) == LONGEST_RTO


def test_reordering_slack_is_half_a_round_trip() -> None:
    rtt = Rtt()
    rtt.update(0.002)
    assert rtt.reordering == pytest.approx(0.001)
