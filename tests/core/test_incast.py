"""What all senders together may have in flight follows what this host takes in."""

from math import inf

import pytest

from dlcpd.core.paths.incast import (
    FEWEST,
    GAIN,
    HOSTS,
    INITIAL,
    LEAST,
    LEAST_DELAY,
    LEAST_SHARE,
    MEMORY,
    MOST_EXCESS,
    MOST_SLOW,
    PORT,
    SLOW,
    ArrivalRate,
    beyond,
    cover,
)
from dlcpd.core.paths.path import PathSender

FAST = 12.5e9  # bytes per second, 100 Gb/s


def arriving(rate: float, seconds: float, *, start: float = 10.0, lag: float = 0.0) -> ArrivalRate:
    made = ArrivalRate()
    feed(made, rate, seconds, start, lag)
    return made


def feed(made: ArrivalRate, rate: float, seconds: float, start: float, lag: float = 0.0) -> None:
    for number in range(int(seconds * 1000)):
        now = start + number / 1000
        made.on_bytes(int(rate / 1000), now, now - lag)


def test_before_anything_is_known_it_is_a_guess() -> None:
    assert ArrivalRate().budget(1e-3, 1e-4) == INITIAL


def test_it_is_two_bandwidth_delay_products() -> None:
    made = arriving(125e6, 0.1)
    assert made.budget(cover(5e-3, 4.5e-3), 4.5e-3) == pytest.approx(GAIN * 125e6 * 5e-3, rel=0.1)


def test_a_queue_that_the_senders_make_does_not_allow_a_longer_one() -> None:
    assert cover(20e-3, 1e-3) == 1e-3 + MOST_EXCESS
    assert cover(40e-3, 1e-3) == 1e-3 + MOST_EXCESS
    assert cover(40e-3, 40e-3) == 40e-3 + MOST_EXCESS, "a long path is covered"


def test_a_short_queue_of_own_data_changes_nothing() -> None:
    assert beyond(0.0) == beyond(MOST_EXCESS - LEAST_DELAY) == 0.0
    assert beyond(10e-3) == 10e-3 + LEAST_DELAY - MOST_EXCESS


@pytest.mark.parametrize(("sent", "wait"), [(1, 10e-3), (0, inf)])
def test_only_data_in_flight_are_in_a_queue(sent: int, wait: float) -> None:
    path = PathSender()
    space = path.space(4)
    space.sent, space.congestion.queue_delay = sent, 10e-3
    assert path.queue == wait


@pytest.mark.parametrize(
    ("rate", "excess"), [(125e6, MOST_EXCESS), (6.25e6, SLOW / 6.25e6), (1.25e6, MOST_SLOW)]
)
def test_all_senders_to_a_slow_link_may_queue_as_much_as_one(rate: float, excess: float) -> None:
    made = arriving(rate, 0.1)
    expected = max(made.best * (20e-3 + excess), LEAST)
    assert made.budget(cover(40e-3, 20e-3), 20e-3) == pytest.approx(expected, rel=0.01)


def test_a_sender_gets_its_share_and_a_burst_at_least() -> None:
    made = arriving(125e6, 0.1)
    assert made.share(5e-3, 1e-3, 4) == made.budget(5e-3, 1e-3) // 4
    assert made.share(5e-3, 1e-3, 0) == made.share(5e-3, 1e-3, 1) == made.budget(5e-3, 1e-3)
    assert made.share(5e-3, 1e-3, 60) == LEAST_SHARE


def test_the_least_shares_of_many_senders_fit_into_a_port() -> None:
    made = arriving(125e6, 0.1)
    assert 143 * made.share(5e-3, 1e-3, 143) <= PORT < 143 * LEAST_SHARE
    assert made.share(5e-3, 1e-3, 1000) == FEWEST


def test_a_short_round_trip_counts_as_an_engines_turn() -> None:
    made = arriving(125e6, 0.1)
    assert made.budget(cover(1e-6, 1e-6), 1e-6) == pytest.approx(
        GAIN * 125e6 * LEAST_DELAY, rel=0.1
    )


def test_a_slow_link_still_lets_a_burst_through() -> None:
    assert arriving(1e5, 0.1).budget(1e-3, 1e-3) == LEAST


def test_on_a_fast_link_the_buffer_of_a_port_is_the_limit() -> None:
    """Milliseconds of 100 Gb/s are 50 MB."""
    made = arriving(FAST, 0.1)
    assert made.budget(cover(20e-6, 20e-6), 20e-6) == pytest.approx(FAST * 20e-6 + PORT, rel=0.1)
    long = 10e-3  # seconds
    assert made.budget(cover(long, long), long) == pytest.approx(FAST * long + PORT, rel=0.1)


def test_data_that_wait_in_the_hosts_are_not_in_the_port() -> None:
    lag = 200e-6  # seconds
    made = arriving(FAST, 0.1, lag=lag)
    expected = FAST * (20e-6 + HOSTS * lag) + PORT
    assert made.budget(cover(20e-6, 20e-6), 20e-6) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("rate", [1.25e6, 12.5e6, 125e6])
def test_up_to_1_gbps_the_buffer_of_a_port_is_no_limit(rate: float) -> None:
    made = arriving(rate, 0.1)
    seconds = cover(1e-3, 1e-3)
    slow = max(min(SLOW / made.best, MOST_SLOW) - MOST_EXCESS, 0.0)
    assert made.budget(seconds, 1e-3) == max(int(made.best * (seconds + slow)), LEAST)


def test_within_a_host_the_limit_of_a_port_does_not_hold() -> None:
    made = arriving(12.5e9, 0.1)
    assert made.budget(4e-3, 1e-4) < made.budget(4e-3, inf) == int(made.best * 4e-3)


def test_idle_time_does_not_count() -> None:
    made = ArrivalRate()
    for begin in range(10):
        feed(made, 125e6, 0.03, 10.0 + begin)
    assert made.best == pytest.approx(125e6, rel=0.1)


def test_a_moment_of_little_does_not_shrink_it() -> None:
    made = arriving(125e6, 0.1)
    feed(made, 1e6, 1.0, 10.1)
    assert made.best == pytest.approx(125e6, rel=0.1)


def test_it_forgets_what_is_long_ago() -> None:
    made = arriving(125e6, 0.1)
    feed(made, 1e6, 2 * MEMORY + 1, 10.1)
    assert made.best == pytest.approx(1e6, rel=0.1)
