"""What all senders together may have in flight follows what this host takes in."""

import pytest

from dlcpd.core.paths.incast import (
    GAIN,
    INITIAL,
    LEAST,
    LEAST_DELAY,
    LEAST_SHARE,
    MEMORY,
    MOST_EXCESS,
    TARGETS,
    ArrivalRate,
    cover,
)


def arriving(rate: float, seconds: float, *, start: float = 10.0) -> ArrivalRate:
    made = ArrivalRate()
    feed(made, rate, seconds, start)
    return made


def feed(made: ArrivalRate, rate: float, seconds: float, start: float) -> None:
    for number in range(int(seconds * 1000)):
        made.on_bytes(int(rate / 1000), start + number / 1000)


def test_before_anything_is_known_it_is_a_guess() -> None:
    assert ArrivalRate().budget(1e-3) == INITIAL


def test_it_is_two_bandwidth_delay_products() -> None:
    made = arriving(125e6, 0.1)
    assert made.budget(cover(5e-3, 4.5e-3)) == pytest.approx(GAIN * 125e6 * 5e-3, rel=0.1)


def test_a_queue_that_the_senders_make_does_not_allow_a_longer_one() -> None:
    assert cover(20e-3, 1e-3) == 1e-3 + MOST_EXCESS
    assert cover(40e-3, 1e-3) == 1e-3 + MOST_EXCESS
    assert cover(40e-3, 40e-3) == 40e-3 + MOST_EXCESS, "a long path is covered"


def test_a_slow_link_may_queue_a_target_each_way() -> None:
    assert cover(40e-3, 20e-3, 1e-3) == 20e-3 + MOST_EXCESS
    assert cover(40e-3, 20e-3, 5e-3) == 20e-3 + TARGETS * 5e-3


def test_a_sender_gets_its_share_and_a_burst_at_least() -> None:
    made = arriving(125e6, 0.1)
    assert made.share(5e-3, 4) == made.budget(5e-3) // 4
    assert made.share(5e-3, 0) == made.share(5e-3, 1) == made.budget(5e-3)
    assert made.share(5e-3, 1000) == LEAST_SHARE


def test_a_short_round_trip_counts_as_an_engines_turn() -> None:
    made = arriving(125e6, 0.1)
    assert made.budget(cover(1e-6, 1e-6)) == pytest.approx(GAIN * 125e6 * LEAST_DELAY, rel=0.1)


def test_a_slow_link_still_lets_a_burst_through() -> None:
    assert arriving(1e5, 0.1).budget(1e-3) == LEAST


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
