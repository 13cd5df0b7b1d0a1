"""The window: grows while it limits, gives way to a standing queue, ignores tolerable loss."""

import pytest

from dlcpd.core.paths.congestion import (
    BASE_SPAN,
    BURST_TIME,
    HEAVY_LOSS,
    INITIAL_WINDOW,
    LEAST_BURST,
    MARK_GAIN,
    MAX_WINDOW,
    MIN_BURST,
    MIN_QUEUE,
    MIN_SHARE,
    MIN_WINDOW,
    MOST_QUEUE,
    PACE_GAIN,
    SLOW_BURST,
    TARGET_DELAY,
    UNPACED,
    CongestionWindow,
    Feedback,
)

BASE = 100e-6  # seconds, an idle fabric


class Path:
    """Round trips of a flow that always (or hardly) fills its window."""

    def __init__(self, window: CongestionWindow | None = None) -> None:
        self.window = window or CongestionWindow()
        self.now, self.sent = 1.0, 0

    def round(
        self, *, queue: float = 0.0, loss: float = 0.0, fill: float = 1.0, marked: float = 0.0
    ) -> float:
        size = max(int(self.window.window * fill), 1)
        self.sent += size
        lost = int(size * loss)
        self.now += BASE + queue
        news = Feedback(
            BASE + queue,
            BASE + queue,
            self.sent,
            self.sent,
            size - lost,
            lost,
            int(marked * (size - lost)),
        )
        self.window.on_credit(self.now, news)
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
    path.window.on_credit(path.now, Feedback(BASE, BASE, path.sent - 511, path.sent, 128))
    for delay, acked in ((BASE + 0.01, path.sent - 100), (BASE, path.sent)):
        path.window.on_credit(path.now, Feedback(delay, delay, acked, path.sent, 128))
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
    assert path.window.window == pytest.approx(MIN_QUEUE, abs=0.1)
    for _ in range(100):
        path.round(marked=1.0)
    assert path.window.window == MIN_WINDOW
    path.window.slow_start = True
    for _ in range(30):
        path.round()
    assert path.window.window == MAX_WINDOW


def test_the_base_delay_is_measured_anew_when_the_route_got_longer() -> None:
    path = settled()
    for _ in range(2):
        path.now += BASE_SPAN + 1
        path.round(queue=4 * TARGET_DELAY)
    assert path.window.base_delay == pytest.approx(BASE + 4 * TARGET_DELAY)


def test_a_queue_that_stood_for_one_span_is_not_the_base_delay() -> None:
    path = settled()
    path.now += BASE_SPAN + 1
    path.round(queue=4 * TARGET_DELAY)
    assert path.window.base_delay == pytest.approx(BASE)


def test_on_a_slow_link_a_burst_may_stand_longer_than_any_target() -> None:
    """40 Mb/s: a packet takes 0.3 ms, and sixteen of them in a queue are no congestion; but
    where many flows share the queue, theirs together may be."""
    path = settled()
    path.window.window = 16.0
    assert path.round(queue=4.7e-3) == 32.0
    path.window.window = 32.0
    assert path.round(queue=2 * MOST_QUEUE) < 32
    path = settled()
    path.window.window = 64.0  # of 24 ms that 64 packets take 16 are at most 6
    assert path.round(queue=24e-3) < 64


def test_credits_without_a_measurement_only_count() -> None:
    path = settled()
    path.sent += 256
    path.window.on_credit(path.now, Feedback(None, BASE, path.sent, path.sent, 256))
    assert path.window.window == 256


# --- marks ------------------------------------------------------------------------------------


def test_marks_shrink_the_window_by_half_their_smoothed_fraction() -> None:
    path = settled()
    shrunk = path.round(marked=1.0)
    assert shrunk == pytest.approx(256 * (1 - MARK_GAIN / 2), rel=0.01)
    for _ in range(100):
        path.window.window = 256.0
        path.round(marked=1.0)
    path.window.window = 256.0
    assert path.round(marked=1.0) == pytest.approx(128, rel=0.02)


def test_few_marks_shrink_it_little_and_none_let_it_grow() -> None:
    path = settled()
    before = path.window.window
    assert before * 0.99 < path.round(marked=0.05) < before
    assert path.round() > before * 0.99


def test_the_first_marks_end_slow_start_with_all_their_weight() -> None:
    path = Path()
    path.round()
    before = path.round()
    assert path.round(marked=1.0) == pytest.approx(before / 2, rel=0.02)
    assert not path.window.slow_start


# --- pace -------------------------------------------------------------------------------------


def paced(window: float = 100, delay: float = 1e-3) -> CongestionWindow:
    made = CongestionWindow()
    made.window, made.round_trip, made.slow_start = window, delay, False
    return made


def test_a_window_leaves_in_bursts_over_its_round_trip() -> None:
    made, now, sent, bursts = paced(), 5.0, 0, 0
    made.spend(made.allowance(now))  # whatever was saved up before
    while now < 5.1:
        now = max(made.ready_at(), now) + 1e-7
        ready = made.allowance(now)
        assert ready >= MIN_BURST
        made.spend(ready)
        sent, bursts = sent + ready, bursts + 1
    assert sent == pytest.approx(PACE_GAIN * 100 / 1e-3 * 0.1, rel=0.02)
    assert sent / bursts < 40


def test_idling_saves_up_one_burst_and_no_more() -> None:
    made = paced()
    made.allowance(5.0)
    assert made.allowance(500.0) == int(made.pace * BURST_TIME)


def test_nothing_leaves_before_a_burst_is_worth_a_call() -> None:
    made = paced()
    made.spend(made.allowance(5.0))
    at = made.ready_at()
    assert made.allowance(at - 1e-6) == 0
    assert made.allowance(at + 1e-6) >= MIN_BURST


@pytest.mark.parametrize(("window", "delay"), [(16, 10e-3), (8, 1.0)])
def test_on_a_slow_link_bursts_are_short(window: float, delay: float) -> None:
    made = paced(window, delay)
    made.allowance(5.0)
    burst = made.allowance(500.0)
    assert LEAST_BURST <= burst <= max(made.pace * SLOW_BURST, LEAST_BURST) < MIN_BURST


def test_a_pace_beyond_the_largest_batch_is_none() -> None:
    made = paced(window=30_000, delay=1e-4)
    assert [made.allowance(5.0), made.allowance(5.0)] == [UNPACED, UNPACED]


def test_many_paths_share_what_one_flow_begins_with() -> None:
    windows = [CongestionWindow(share=1 / paths).window for paths in (1, 4, 16)]
    assert windows == [INITIAL_WINDOW, INITIAL_WINDOW / 4, MIN_SHARE]
    path = Path(CongestionWindow(share=1 / 16))
    path.round()
    for _ in range(20):
        path.round(marked=1.0)
    assert path.window.window == MIN_SHARE
