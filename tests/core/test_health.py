"""Gray failures: an alarm that no loss bound hides, and that does not flutter."""

import pytest

from dlcpd.core.paths.health import ALARM_LOSS, SAMPLE, PathHealth, PathState


class Traffic:
    """A path's totals as they grow."""

    def __init__(self) -> None:
        self.health, self.acked, self.lost = PathHealth(), 0, 0

    def sample(self, loss: float) -> PathState | None:
        self.acked += SAMPLE
        self.lost += int(SAMPLE * loss)
        return self.health.observe(self.acked, self.lost)


def test_two_bad_samples_raise_the_alarm_once() -> None:
    path = Traffic()
    assert [path.sample(0.01) for _ in range(4)] == [None, PathState.GRAY, None, None]
    assert path.health.gray
    assert path.health.loss == pytest.approx(0.01)


def test_one_bad_sample_does_not() -> None:
    path = Traffic()
    assert [path.sample(loss) for loss in (0.5, 0.0, 0.5, 0.0)] == [None] * 4


def test_the_alarm_ends_well_below_where_it_began() -> None:
    path = Traffic()
    path.sample(0.01)
    path.sample(0.01)
    assert [path.sample(ALARM_LOSS * 0.8) for _ in range(3)] == [None] * 3
    assert [path.sample(0.0) for _ in range(2)] == [None, PathState.CLEAR]
    assert not path.health.gray


def test_nothing_is_judged_by_few_packets() -> None:
    health = PathHealth()
    assert health.observe(SAMPLE - 1, SAMPLE - 1) is None
    assert health.loss == 0


def test_packets_that_come_late_are_no_negative_loss() -> None:
    path = Traffic()
    path.sample(0.01)
    path.lost = 0
    path.sample(0.0)
    assert path.health.loss == 0
