"""The wait for a pass whose end is not seen: measured, generous, never before it was measured."""

import pytest

from dlcpd.core.transfer.pass_time import FLOOR, MARGIN, PassTime


def test_unmeasured_the_end_is_waited_for() -> None:
    assert PassTime().allowance(1440) == float("inf")


def test_it_is_at_least_the_floor() -> None:
    known = PassTime()
    known.update(1e-6, 1440)
    assert known.allowance(1440) == FLOOR


def test_slow_passes_are_waited_for_in_proportion() -> None:
    known = PassTime()
    for _ in range(100):
        known.update(2.0, 1440)
    assert known.allowance(1440) == pytest.approx(MARGIN * 2.0, rel=0.01)
    assert known.allowance(720) == pytest.approx(MARGIN, rel=0.01)


def test_uneven_passes_are_waited_for_longer() -> None:
    even, uneven = PassTime(), PassTime()
    for number in range(100):
        even.update(1.0, 1440)
        uneven.update(0.5 + number % 2, 1440)
    assert uneven.allowance(1440) > 1.5 * even.allowance(1440)
