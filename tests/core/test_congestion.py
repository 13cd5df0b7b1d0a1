"""Pace and window: they follow what the path delivers, give way to a standing queue and to
marks, and ignore tolerable loss."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from dlcpd.core.paths.congestion import (
    BASE_SPAN,
    FINEST_TIMER,
    GAIN,
    GSO_BURST,
    HEAVY_LOSS,
    INITIAL_WINDOW,
    LEAST_BURST,
    LEAST_TARGET,
    MARK_GAIN,
    MAX_WINDOW,
    MIN_SHARE,
    MIN_WINDOW,
    MOST_EXCESS,
    MOST_TARGET,
    ROOM,
    TARGET_DELAY,
    TARGET_QUEUE,
    UNPACED,
    CongestionControl,
    Feedback,
    target_queue,
)
from dlcpd.core.paths.paths import Paths

BASE = 100e-6  # seconds, an idle fabric
RATE = 80_000.0  # packets per second, of 1,408 B: a link of 1 Gb/s
ROUND = 2e-3  # seconds, or as long as eight packets take


class Path:
    """Rounds of a flow that always has something to send, unless it says `dry`."""

    def __init__(self, control: CongestionControl | None = None, rate: float = RATE) -> None:
        self.control = control or CongestionControl()
        self.now, self.sent, self.rate = 1.0, 0, rate
        self.length = max(ROUND, 8 / rate)

    def round(
        self,
        *,
        size: int = 0,
        queue: float = 0.0,
        loss: float = 0.0,
        marked: float = 0.0,
        dry: bool = False,
    ) -> CongestionControl:
        size = size or round(self.rate * self.length)
        self.sent += size
        lost = int(size * loss)
        self.now += self.length
        self.control.spend(size)
        if dry:
            self.control.ran_dry()
        self.control.on_credit(self.now, self.news(queue, size - lost, lost, marked))
        return self.control

    def news(self, queue: float, arrived: int, lost: int, marked: float = 0.0) -> Feedback:
        delay = BASE + queue
        return Feedback(
            delay,
            max(delay, 2 * MIN_SHARE / self.rate),
            delay,
            self.now,
            self.sent,
            self.sent,
            arrived,
            lost,
            int(marked * arrived),
        )


def settled(rate: float = RATE, path: Path | None = None) -> Path:
    """A path whose base delay and rate are known."""
    path = path or Path(rate=rate)
    for _ in range(3):
        path.round()
    path.control.slow_start = False
    path.round()
    return path


# --- slow start -----------------------------------------------------------------------------------


def test_slow_start_doubles_while_the_window_limits() -> None:
    path = Path()
    path.round()
    before = path.control.window
    assert path.round().window == 2 * before
    assert path.control.pace == pytest.approx(2 * path.control.window / path.control.round_trip)


def test_a_flow_with_little_to_send_does_not_grow_its_window() -> None:
    path = Path(rate=4000)  # eight packets per round
    for _ in range(5):
        path.round()
    assert path.control.window == INITIAL_WINDOW
    assert path.control.slow_start


def test_operations_that_fill_the_window_let_it_grow_though_they_end() -> None:
    path = Path()
    path.round(dry=True)
    assert path.round(dry=True).window == 4 * INITIAL_WINDOW


def test_a_window_that_is_not_used_does_not_grow() -> None:
    path = Path()
    for _ in range(30):
        path.round()
    assert path.control.window <= 4 * RATE * ROUND


def test_the_window_has_a_ceiling() -> None:
    path = Path(rate=1e9)
    for _ in range(30):
        path.round()
    assert path.control.window == MAX_WINDOW


@pytest.mark.parametrize(
    "sign", [{"queue": TARGET_DELAY * 0.6}, {"marked": 0.1}, {"loss": 2 * HEAVY_LOSS}]
)
def test_slow_start_ends_at_the_first_sign_of_congestion(sign: dict[str, Any]) -> None:
    path = Path()
    path.round()
    path.round()
    assert not path.round(**sign).slow_start
    assert path.control.rate == pytest.approx(RATE, rel=2.1 * HEAVY_LOSS)


def test_where_nothing_was_measured_the_window_stands_for_the_rate() -> None:
    path = Path()
    control = path.round(marked=0.5)
    assert not control.slow_start
    assert control.rate == pytest.approx(INITIAL_WINDOW / control.round_trip)


# --- pace by rate and queue -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("targets", "gain"),
    [(0, 1 + GAIN), (0.5, 1 + GAIN / 2), (1, 1), (2, 1 - GAIN), (9, 1 - MOST_EXCESS * GAIN)],
)
def test_the_pace_is_the_rate_times_a_gain_by_the_queue(targets: float, gain: float) -> None:
    window = settled().round(queue=targets * TARGET_DELAY)
    assert window.rate == pytest.approx(RATE)
    assert window.pace == pytest.approx(gain * RATE)


def test_a_closed_loop_settles_at_the_target() -> None:
    """The queue of a link is what went in and not out: the pace finds the link's rate."""
    path, queue = settled(), 0.0
    for _ in range(200):
        path.rate = RATE if queue else min(RATE, path.control.pace)
        path.round(queue=queue)
        queue = max(queue + (path.control.pace - RATE) * ROUND / RATE / 8, 0.0)
    assert path.control.pace == pytest.approx(RATE, rel=0.02)
    assert queue == pytest.approx(TARGET_DELAY, rel=0.1)


def test_some_losses_of_a_few_packets_do_not_end_slow_start() -> None:
    path = Path()
    path.round()
    assert path.round(size=16, loss=0.2).slow_start
    assert not path.round(size=160, loss=0.2).slow_start


class LongPath(Path):
    """A path with a round trip of 100 ms."""

    def news(self, queue: float, arrived: int, lost: int, marked: float = 0.0) -> Feedback:
        news = super().news(queue, arrived, lost, marked)
        return replace(news, round_trip=0.1 + queue, answered=0.1 + queue)


def test_on_a_long_path_a_round_drains_the_queue_and_no_more() -> None:
    path = settled(path=LongPath())
    queue = 3 * path.control.target
    assert path.round(queue=queue).gain == pytest.approx(1 - (queue - path.control.target) / 0.1)
    assert path.round().gain == 1 + GAIN


def test_after_a_pause_on_a_long_path_the_pace_is_the_rate() -> None:
    path = settled(path=LongPath())
    path.control.allowance(path.now)
    path.round(queue=3 * path.control.target)
    path.control.allowance(path.now + 0.05)
    assert path.control.gain < 1
    path.control.allowance(path.now + 0.2)
    assert (path.control.gain, path.control.pace) == (1, path.control.rate)


def test_on_a_long_path_the_window_lets_the_rate_grow_until_a_queue_stands() -> None:
    path = settled(path=LongPath())
    target = path.control.target
    assert path.round().window == pytest.approx(RATE * (0.1 * (1 + GAIN) + target))
    assert path.round(queue=target / 2).window == pytest.approx(RATE * (0.1 + ROOM * target))


def test_the_window_holds_what_the_path_delivers_in_an_answer_and_some_queue() -> None:
    window = settled().round(queue=4 * TARGET_DELAY)
    assert window.window == pytest.approx(RATE * (BASE + ROOM * TARGET_DELAY))


def test_a_round_without_enough_to_send_says_nothing_of_the_rate() -> None:
    path = settled()
    path.rate = RATE / 100
    for _ in range(30):
        path.round(dry=True)
    assert path.control.rate == pytest.approx(RATE)


def test_a_pause_says_nothing_of_the_rate() -> None:
    path = settled()
    for _ in range(30):
        path.round(dry=True)
        path.now += 0.1
        path.round()
    assert path.control.rate == pytest.approx(RATE)


def test_a_round_that_the_credit_limited_says_nothing_of_the_rate() -> None:
    """The pace and the window would have let more out: the peer's grant did not."""
    path = settled()
    for _ in range(30):
        path.control.allowance(path.now + ROUND)
        path.round(size=16, queue=TARGET_DELAY / 2)
    assert path.control.rate == pytest.approx(RATE)


def test_a_link_that_has_become_slow_is_found_out_though_the_pace_is_never_used_up() -> None:
    path = settled()
    for _ in range(30):
        path.control.allowance(path.now + 10 * ROUND)
        path.length = 10 * ROUND
        path.round(size=int(path.control.window), queue=3 * TARGET_DELAY)
    assert path.control.rate < RATE / 5


def test_slow_start_that_the_credit_limited_ends_with_the_rate_of_its_window() -> None:
    path = Path()
    for queue in (0.0, 0.0, TARGET_DELAY):
        path.control.allowance(path.now)
        control = path.round(size=8, queue=queue)
    assert not control.slow_start
    assert control.rate == pytest.approx(INITIAL_WINDOW / control.round_trip)


def test_on_a_slow_link_the_target_is_in_packets_and_has_a_limit() -> None:
    """40 Mb/s: a packet takes 0.3 ms, and some of them in a queue are no congestion; but where
    many flows share the queue, theirs together may be."""
    assert settled(rate=4000).control.target == pytest.approx(TARGET_QUEUE / 4000)
    assert settled(rate=2000).control.target == MOST_TARGET
    assert settled().control.target == TARGET_DELAY


def test_within_a_host_there_is_no_port_to_spare() -> None:
    rate = 100e9 / 8 / 1474
    assert target_queue(rate) < TARGET_DELAY
    assert target_queue(rate, port=False) == TARGET_DELAY
    paths = Paths.new(2)
    paths.stay_here()
    control = paths.space(1, 4).congestion
    assert not control.port
    assert paths.tx[0].quickest == inf


@pytest.mark.parametrize(
    ("gbps", "target"), [(1, TARGET_DELAY), (10, 108e-6), (25, LEAST_TARGET), (100, LEAST_TARGET)]
)
def test_on_a_fast_link_the_target_is_that_of_a_port_in_packets(gbps: float, target: float) -> None:
    """1 ms of 100 Gb/s is 12 MB; below LEAST_TARGET, a queue cannot be measured."""
    rate = gbps * 1e9 / 8 / 1500
    assert settled(rate=rate).control.target == pytest.approx(target, rel=0.01)


def test_one_slow_packet_in_a_round_is_no_standing_queue() -> None:
    path = settled()
    path.sent += 512
    for delay, acked in ((BASE + 0.01, path.sent - 100), (BASE, path.sent)):
        news = Feedback(delay, delay, delay, path.now, acked, path.sent, 128)
        path.control.on_credit(path.now, news)
    assert path.control.queue_delay == pytest.approx(0.0)


def test_pace_and_window_have_a_floor() -> None:
    path = settled(rate=100)
    path.control.delivery.forget()
    path.round(dry=True)
    assert path.control.rate == MIN_SHARE / path.control.round_trip
    assert path.control.window == MIN_WINDOW


# --- loss and marks -------------------------------------------------------------------------------


def test_a_host_that_is_slow_on_an_empty_path_is_not_slowed_down_for_it() -> None:
    path = settled()
    path.length *= 10  # what was sent in a round trip comes in ten
    for _ in range(20):
        path.round(size=round(RATE * ROUND))
    assert path.control.pace == pytest.approx((1 + GAIN) * RATE)
    for _ in range(20):  # with a queue it is the link
        path.round(size=round(RATE * ROUND), queue=2 * TARGET_DELAY)
    assert path.control.rate == pytest.approx(RATE / 10)


@pytest.mark.parametrize("loss", [0.01, 0.05])
def test_tolerable_loss_does_not_slow_down(loss: float) -> None:
    path = settled()
    for _ in range(20):
        path.round(loss=loss)
    assert path.control.pace == pytest.approx((1 + GAIN) * RATE * (1 - loss), rel=0.01)


def test_heavy_loss_does() -> None:
    loss = 2 * HEAVY_LOSS
    assert settled().round(loss=loss).gain == pytest.approx((1 + GAIN) * (1 - loss / 2), rel=0.01)


def test_marks_slow_down_by_half_their_smoothed_fraction() -> None:
    path = settled()
    assert path.round(marked=1.0).gain == pytest.approx((1 + GAIN) * (1 - MARK_GAIN / 2), rel=0.01)
    for _ in range(100):
        path.round(marked=1.0)
    assert path.control.gain == pytest.approx((1 + GAIN) / 2, rel=0.02)


def test_few_marks_slow_down_little_and_none_not_at_all() -> None:
    path = settled()
    assert 0.99 * (1 + GAIN) < path.round(marked=0.05).gain < 1 + GAIN
    assert path.round().gain == 1 + GAIN


def test_the_first_marks_end_slow_start_with_all_their_weight() -> None:
    path = Path()
    path.round()
    path.round()
    assert path.round(marked=1.0).gain == pytest.approx((1 + GAIN) / 2, rel=0.05)


# --- what is old ----------------------------------------------------------------------------------


def test_the_base_delay_is_measured_anew_when_the_route_got_longer() -> None:
    path = settled()
    for _ in range(2):
        path.now += BASE_SPAN + 1
        path.round(queue=4 * TARGET_DELAY)
    assert path.control.base_delay == pytest.approx(BASE + 4 * TARGET_DELAY)
    assert path.control.window == pytest.approx(RATE * (BASE + (4 + ROOM) * TARGET_DELAY))


def test_a_queue_that_stood_for_one_span_is_not_the_base_delay() -> None:
    path = settled()
    path.now += BASE_SPAN + 1
    path.round(queue=4 * TARGET_DELAY)
    assert path.control.base_delay == pytest.approx(BASE)


def test_a_rate_is_kept_between_operations_but_not_for_ever() -> None:
    path = settled()
    path.control.allowance(path.now)
    path.control.allowance(path.now + BASE_SPAN - 1)
    assert not path.control.slow_start
    path.control.allowance(path.now + 2 * BASE_SPAN)
    assert path.control.slow_start
    assert path.control.window == INITIAL_WINDOW


def test_credits_without_a_measurement_only_count() -> None:
    path = settled()
    before = path.control.pace, path.control.window
    path.sent += 256
    news = Feedback(None, BASE, BASE, path.now, path.sent, path.sent, 256)
    path.control.on_credit(path.now, news)
    assert (path.control.pace, path.control.window) == before


# --- bursts ---------------------------------------------------------------------------------------


def paced(rate: float = RATE) -> CongestionControl:
    made = settled(rate).control
    made.allowance(5.0)
    return made


@pytest.mark.parametrize("rate", [4000.0, 16_000.0, RATE])
def test_the_pace_leaves_in_bursts_of_half_the_target(rate: float) -> None:
    made, now, sent, bursts = paced(rate), 5.0, 0, 0
    made.spend(made.allowance(now))  # whatever was saved up before
    while now < 5.5:
        now = made.ready_at()
        ready = made.allowance(now)
        assert ready >= max(int(made.pace * made.target / 2), LEAST_BURST)
        made.spend(ready)
        sent, bursts = sent + ready, bursts + 1
    assert sent == pytest.approx((1 + GAIN) * rate / 2, rel=0.02)
    assert sent / bursts <= max(made.pace * made.target / 2, LEAST_BURST) + 1


def test_idling_saves_up_the_target_and_no_more() -> None:
    made = paced()
    assert made.allowance(8.0) == pytest.approx(made.pace * made.target, abs=1)


def test_nothing_leaves_before_a_burst_is_worth_a_call() -> None:
    made = paced()
    made.spend(made.allowance(5.0))
    at = made.ready_at()
    assert made.allowance(at - 1e-4) == 0
    assert made.allowance(at) >= LEAST_BURST  # though rounding may have set the timer early


@pytest.mark.parametrize("rate", [8e5, 3e6])
def test_timers_of_a_fast_pace_are_no_finer_than_an_engine_can_keep(rate: float) -> None:
    made = paced(rate=rate)
    made.spend(made.allowance(5.0))
    assert made.ready_at() - 5.0 >= 0.95 * FINEST_TIMER


def test_a_gso_burst_leaves_without_a_timer() -> None:
    made = paced(rate=3e6)
    made.spend(made.allowance(5.0) - GSO_BURST)
    assert made.worthwhile > GSO_BURST
    assert made.allowance(5.0) == GSO_BURST


@pytest.mark.parametrize("round_trip", [30e-6, 150e-6])
def test_a_window_that_takes_less_than_a_timer_leaves_at_once(round_trip: float) -> None:
    """Slow start on a fast fabric: the pace would hold back a message of fewer packets."""
    control = CongestionControl()
    control.on_credit(1.0, Feedback(0.0, round_trip, round_trip, 1.0, 8, 64, 8))
    assert control.allowance(1.0) == UNPACED


def test_a_pace_beyond_the_largest_batch_is_none() -> None:
    made = paced(rate=1e7)
    assert [made.allowance(5.0), made.allowance(5.0)] == [UNPACED, UNPACED]
    assert made.worthwhile == UNPACED


def test_what_went_out_without_a_pace_is_not_owed_when_there_is_one() -> None:
    path = Path(rate=1e9)
    while path.control.window < MAX_WINDOW:
        path.control.spend(path.control.allowance(path.now))
        path.round()
    path.rate = RATE
    for _ in range(5):
        path.round(queue=2 * TARGET_DELAY)
    assert path.control.allowance(path.now) < UNPACED  # it is paced now
    assert path.control.ready_at() <= path.now + TARGET_DELAY


# --- shares, and none at all ----------------------------------------------------------------------


def test_many_paths_share_what_one_flow_begins_with_and_keeps() -> None:
    windows = [CongestionControl(share=1 / paths).window for paths in (1, 4, 16)]
    assert windows == [INITIAL_WINDOW, INITIAL_WINDOW / 4, MIN_SHARE]
    path = Path(CongestionControl(share=1 / 16), rate=100)
    for _ in range(4):
        path.round(queue=MOST_TARGET)
    path.round(queue=2 * MOST_TARGET)
    assert path.control.window == MIN_SHARE


def test_without_congestion_control_everything_may_leave() -> None:
    path = Path(CongestionControl(enabled=False))
    for _ in range(5):
        path.round(queue=0.1, loss=0.5, marked=1.0)
    assert path.control.window == MAX_WINDOW
    assert path.control.allowance(path.now) == UNPACED
    assert path.control.allowance(path.now + 2 * BASE_SPAN) == UNPACED
    assert path.control.window == MAX_WINDOW
