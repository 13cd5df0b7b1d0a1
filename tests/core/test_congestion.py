"""The window: grows while it limits, gives way to a standing queue, ignores tolerable loss."""

import pytest

from dlcpd.core.congestion import (
    HEAVY_LOSS,
    INITIAL_WINDOW,
    MAX_WINDOW,
    MIN_WINDOW,
    STALE_MINIMUM,
    TARGET_DELAY,
    DelayWindow,
)

BASE = 100e-6  # seconds, an idle fabric
NONE_LOST = {"arrived": 128, "lost": 0}


class Path:
    """Round trips of a flow that always (or hardly) fills its window."""

    def __init__(self, window: DelayWindow | None = None) -> None:
        self.window = window or DelayWindow()
        self.now, self.sent = 1.0, 0

    def round(self, *, queue: float = 0.0, loss: float = 0.0, fill: float = 1.0) -> float:
        size = max(int(self.window.window * fill), 1)
        self.sent += size
        lost = int(size * loss)
        self.now += BASE + queue
        self.window.on_credit(
            self.now, delay=BASE + queue, acked=self.sent, sent=self.sent,
            arrived=size - lost, lost=lost,
        )  # fmt: skip
        return self.window.window


def settled() -> Path:
    """A path whose base delay is known and whose slow start has ended."""
    path = Path()
    path.round()
    path.window.slow_start = False
    path.window.window = 256.0
    return path


def test_slow_start_doubles_while_the_window_limits() -> None:
    path = Path()
    path.round()
    assert path.round() > INITIAL_WINDOW
    before = path.window.window
    assert path.round() == 2 * before


def test_growth_is_additive_after_slow_start() -> None:
    path = settled()
    assert path.round() == pytest.approx(256 + 16)


def test_slow_start_ends_at_the_first_queue() -> None:
    path = Path()
    path.round()
    path.round(queue=TARGET_DELAY * 0.6)
    assert not path.window.slow_start


def test_an_application_that_does_not_fill_the_window_does_not_grow_it() -> None:
    path = settled()
    for _ in range(20):
        path.round(fill=0.1)
    assert path.window.window == 256


def test_a_standing_queue_shrinks_the_window() -> None:
    path = settled()
    shrunk = path.round(queue=4 * TARGET_DELAY)
    assert shrunk == pytest.approx(256 * (1 - 0.75 / 2))
    assert path.window.queue_delay == pytest.approx(4 * TARGET_DELAY)


def test_one_slow_packet_in_a_round_is_no_standing_queue() -> None:
    path = settled()
    path.round(fill=2)  # leaves a round under way, which ends with the packets sent now
    before, path.sent = path.window.window, path.sent + 512
    path.window.on_credit(path.now, delay=BASE, acked=path.sent - 511, sent=path.sent, **NONE_LOST)
    for delay, acked in ((BASE + 0.01, path.sent - 100), (BASE, path.sent)):
        path.window.on_credit(path.now, delay=delay, acked=acked, sent=path.sent, **NONE_LOST)
    assert path.window.window >= before
    assert path.window.queue_delay == pytest.approx(0.0)


@pytest.mark.parametrize("loss", [0.01, 0.05])
def test_tolerable_loss_does_not_shrink_the_window(loss: float) -> None:
    path = settled()
    for _ in range(20):
        path.round(loss=loss)
    assert path.window.window == pytest.approx(256 + 20 * 16)


def test_heavy_loss_does() -> None:
    path = settled()
    assert path.round(loss=2 * HEAVY_LOSS) < 256


def test_the_window_has_a_floor_and_a_ceiling() -> None:
    path = settled()
    for _ in range(20):
        path.round(queue=0.1)
    assert path.window.window == MIN_WINDOW
    path.window.slow_start = True
    for _ in range(30):
        path.round()
    assert path.window.window == MAX_WINDOW


def test_the_base_delay_is_measured_anew_when_the_route_got_longer() -> None:
    path = settled()
    path.now += STALE_MINIMUM + 1
    path.round(queue=4 * TARGET_DELAY)
    assert path.window.base_delay == pytest.approx(BASE + 4 * TARGET_DELAY)


def test_credits_without_a_measurement_only_count() -> None:
    path = settled()
    path.sent += 256
    path.window.on_credit(
        path.now, delay=None, acked=path.sent, sent=path.sent, arrived=256, lost=0
    )
    assert path.window.window == 256
