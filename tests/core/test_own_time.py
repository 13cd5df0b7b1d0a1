"""How late this process was, and what that excuses."""

import pytest

from dlcpd.core.own_time import JITTER, MOST_COUNTED, OwnTime


def test_a_process_in_time_excuses_nothing() -> None:
    own = OwnTime()
    assert own.wake(None, 100.0) == 0.0
    assert own.wake(200.0, 150.0) == 0.0
    assert own.wake(200.0, 200.0) == 0.0
    assert own.wake(200.2, 200.19 + JITTER) == 0.0
    assert own.excused == 0.0


@pytest.mark.parametrize("late", [0.1, 2.0, 3600.0])
def test_a_process_that_slept_excuses_nearly_all_of_it(late: float) -> None:
    own = OwnTime()
    own.wake(100.0, 100.0)
    excused = own.wake(100.2, 100.2 + late)
    assert late - MOST_COUNTED <= excused < late


def test_lateness_is_counted_once() -> None:
    """What is handled only so many at a time stays due: that is no new lateness."""
    own = OwnTime()
    own.wake(100.0, 100.0)
    assert own.wake(100.0, 105.0) > 4.9
    assert own.wake(100.0, 105.01) == 0.0


def test_small_lateness_adds_up() -> None:
    """A process that runs for 10 ms in every 500 hears little of what is said."""
    own, now = OwnTime(), 100.0
    for _ in range(20):
        own.wake(now, now)
        own.wake(now + 0.01, now + 0.5)
        now += 0.5
    assert own.excused == pytest.approx(20 * (0.49 - MOST_COUNTED))
    assert own.excused < now - 100.0  # a dead peer is found in the end
