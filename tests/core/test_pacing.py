"""The token bucket holds its rate over any time longer than a burst."""

import pytest

from dlcpd.core.paths.pacing import BURST, MIN_BURST, Pacer

MEGABIT = 1e6


def test_no_cap() -> None:
    pacer = Pacer(0)
    pacer.spend(1 << 40)
    assert pacer.allowance(0.0) == 1 << 30
    assert pacer.ready_at(1 << 40, 5.0) == 5.0


def test_an_idle_pacer_saves_one_burst_and_no_more() -> None:
    pacer = Pacer(800 * MEGABIT)
    assert pacer.allowance(1000.0) == int(100e6 * BURST)


def test_a_slow_pacer_still_lets_datagrams_out() -> None:
    assert Pacer(1 * MEGABIT).allowance(1000.0) == MIN_BURST


def test_spending_more_than_the_allowance_is_paid_back() -> None:
    pacer = Pacer(800 * MEGABIT)  # 100 MB/s: a burst of 30,000 B
    pacer.allowance(1.0)
    pacer.spend(40_000)
    assert pacer.allowance(1.0) < 0
    assert pacer.allowance(1.0001) == pytest.approx(0, abs=1)
    assert pacer.allowance(1.0002) == pytest.approx(10_000, abs=1)


def test_ready_at_is_when_the_allowance_is_there() -> None:
    pacer = Pacer(800 * MEGABIT)
    pacer.allowance(1.0)
    pacer.spend(30_000)
    at = pacer.ready_at(15_000, 1.0)
    assert at == pytest.approx(1.00015)
    assert pacer.allowance(at) >= 14_999


def test_what_exceeds_a_burst_waits_for_a_full_one() -> None:
    pacer = Pacer(800 * MEGABIT)
    pacer.allowance(1.0)
    pacer.spend(30_000)
    assert pacer.ready_at(1 << 20, 1.0) == pytest.approx(1.0003)


def test_the_rate_holds_in_the_long_run() -> None:
    pacer, now, sent = Pacer(800 * MEGABIT), 0.0, 0
    while now < 10.0:
        size = max(pacer.allowance(now), 0)
        pacer.spend(size)
        sent += size
        now += 0.0002
    assert sent == pytest.approx(1e9, rel=0.01)
