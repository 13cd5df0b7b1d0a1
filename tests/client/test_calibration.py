"""When both ways are measured, and what is made of it: with a clock that the test turns."""

import logging
from collections.abc import Callable, Sequence

import pytest
import torch
from torch.futures import Future

from dlcp_client.auto.calibration import STEPS, Calibration
from dlcp_client.auto.choice import MIN_PAUSE, Way
from dlcp_client.auto.turns import SKIPPED, TURN, typical

FIRST = 3
END = FIRST + STEPS + TURN  # of a calibration after which sizes take different ways
SIZES = (8, 64)
Cost = Callable[[Way, int], float]  # seconds that a bucket of a size takes


class Rank:
    """One rank's training of two buckets a step, in virtual time."""

    def __init__(self, agree: Callable[[Sequence[float]], Sequence[float]], cost: Cost) -> None:
        self.now, self.cost, self.step = 0.0, cost, 0
        self.calibration = Calibration(agree, first=FIRST, clock=lambda: self.now)
        self.ways: list[tuple[Way, ...]] = []  # of every step

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.step += 1
            self.calibration.begin(self.step)
            self.ways.append(tuple(self._average(size) for size in SIZES))
            self.now += 0.1  # computation

    def _average(self, size: int) -> Way:
        way = self.calibration.way(size)
        self.calibration.timed(size, lambda: self._later(self.cost(way, size))).wait()
        return way

    def _later(self, seconds: float) -> "Future[torch.Tensor]":
        self.now += seconds
        done: Future[torch.Tensor] = Future()
        done.set_result(torch.zeros(1))
        return done


def alone(values: Sequence[float]) -> Sequence[float]:
    return values


def large_by_dlcpd(way: Way, size: int) -> float:
    return 0.010 if way == "backend" else {8: 0.012, 64: 0.005}[size]


def test_steps_take_the_ways_by_turns_and_then_what_was_faster() -> None:
    rank = Rank(alone, large_by_dlcpd)
    rank.train(END)
    assert rank.ways[: FIRST - 1] == [("backend", "backend")] * (FIRST - 1)
    measured = rank.ways[FIRST - 1 : FIRST - 1 + STEPS]
    assert "".join(way[0] for way, _ in measured) == "bbbbbddddddddddbbbbb"
    assert all(one == other for one, other in measured)
    assert rank.ways[FIRST - 1 + STEPS :] == [("backend", "dlcp")] * (TURN + 1)
    transports = rank.calibration.transports
    assert transports.step == END
    [small, large] = transports.sizes
    assert (small.times.dlcp, small.times.backend) == pytest.approx((0.012, 0.010))
    assert (large.times.dlcp, large.times.backend) == pytest.approx((0.005, 0.010))
    assert (transports.whole.dlcp, transports.whole.backend) == pytest.approx((0.117, 0.120))
    assert transports.mixed == pytest.approx(0.115)


def leaving(rank: Rank, steps: int) -> dict[int, frozenset[int]]:
    """Sizes by the steps in which they leave dlcpd."""
    found = {}
    for _ in range(steps):
        rank.train(1)
        if rank.calibration.leaving:
            found[rank.step] = rank.calibration.leaving
    return found


def test_sizes_that_leave_dlcpd_are_known_in_the_step_of_the_decision() -> None:
    assert leaving(Rank(alone, large_by_dlcpd), END + 3) == {FIRST + STEPS: {8}}


def test_sizes_that_are_slow_together_take_one_way_again() -> None:
    """They share a link, say: what no step had done yet is tried before it stays."""

    def cost(way: Way, size: int) -> float:
        decided = bool(rank.calibration.transports.sizes)
        return 0.030 if decided else large_by_dlcpd(way, size)

    rank = Rank(alone, cost)
    assert leaving(rank, END + 1) == {FIRST + STEPS: {8}}
    assert rank.ways[FIRST - 1 + STEPS : END - 1] == [("backend", "dlcp")] * TURN
    assert rank.ways[END - 1 :] == [("dlcp", "dlcp")] * 2  # its steps took 117 of 120 ms


def test_a_size_that_is_taken_back_to_the_backend_leaves_dlcpd() -> None:
    def agreed(values: Sequence[float]) -> Sequence[float]:
        return [1.2] if len(values) == 1 else [1.0, 1.0, 0.2, 0.1, 0.1, 0.2]

    found = leaving(Rank(agreed, large_by_dlcpd), END + 1)
    assert found == {FIRST + STEPS: {8}, END: {64}}


def test_nothing_more_is_tried_where_all_take_one_way() -> None:
    rank = Rank(alone, lambda way, size: 0.01 if way == "backend" else 0.001)
    rank.train(FIRST + STEPS)
    assert rank.ways[-1] == ("dlcp", "dlcp")
    assert rank.calibration.transports.step == FIRST + STEPS
    assert rank.calibration.next > rank.step


def test_it_is_measured_again_after_the_pause_and_follows_the_network() -> None:
    rank = Rank(alone, large_by_dlcpd)
    rank.train(END)
    again = rank.calibration.next
    assert again - rank.step >= MIN_PAUSE
    rank.cost = lambda way, size: 0.05 if way == "backend" else 0.01  # TCP meets congestion
    rank.train(again - rank.step - 1)
    assert rank.ways[-1] == ("backend", "dlcp")
    rank.train(1 + STEPS + 1)
    assert rank.ways[again - 1] == ("backend",) * 2
    assert rank.ways[-1] == ("dlcp", "dlcp")
    assert rank.calibration.transports.step == again + STEPS
    assert rank.calibration.next - rank.step > again - END  # it costs more now


def test_the_first_steps_of_a_turn_do_not_count() -> None:
    """dlcpd finds its rate in them."""

    def cost(way: Way, size: int) -> float:
        first = (rank.step - FIRST) % TURN < SKIPPED
        return 5.0 if way == "dlcp" and first else large_by_dlcpd(way, size)

    rank = Rank(alone, cost)
    rank.train(FIRST + STEPS)
    assert rank.ways[-1] == ("backend", "dlcp")
    assert rank.calibration.transports.sizes[1].times.dlcp == pytest.approx(0.005)


def test_one_outlier_moves_nothing() -> None:
    def cost(way: Way, size: int) -> float:
        saving = rank.step == FIRST + TURN + SKIPPED
        return 5.0 if way == "dlcp" and saving else large_by_dlcpd(way, size)

    rank = Rank(alone, cost)
    rank.train(FIRST + STEPS)
    assert rank.ways[-1] == ("backend", "dlcp")


def test_stalls_count_though_most_steps_have_none() -> None:
    def cost(way: Way, size: int) -> float:
        stalls = way == "backend" and size == 64 and rank.step % TURN == 0
        return 0.2 if stalls else 0.010 if way == "dlcp" else 0.009

    rank = Rank(alone, cost)
    rank.train(FIRST + STEPS)
    assert rank.ways[-1] == ("backend", "dlcp")


def test_typical_is_the_mean_without_the_longest() -> None:
    assert typical([3.0]) == 3.0
    assert typical([9.0, 1.0, 2.0]) == 1.5


def test_ranks_offer_equally_many_values_in_the_same_step_and_take_what_is_agreed() -> None:
    """Each alone would choose otherwise; the slowest rank's times count."""
    offered: list[list[float]] = []

    def refused(values: Sequence[float]) -> Sequence[float]:
        offered.append(list(values))
        return [max(column) for column in zip(*offered, strict=True)]

    fast = Rank(refused, lambda way, size: 0.01 if way == "backend" else 0.001)
    slow = Rank(refused, lambda way, size: 0.02 if way == "backend" else 0.9)
    fast.train(FIRST + STEPS)
    slow.train(FIRST + STEPS)
    assert len(offered[0]) == len(offered[1]) == 2 * (1 + len(SIZES))
    assert fast.ways[-1] == ("dlcp", "dlcp")  # it had only its own
    assert slow.ways[-1] == ("backend", "backend")
    again = Rank(
        lambda values: [max(pair) for pair in zip(values, offered[1], strict=True)], fast.cost
    )
    again.train(FIRST + STEPS)
    assert again.calibration.transports == slow.calibration.transports
    assert again.calibration.next == slow.calibration.next


def test_what_fails_is_passed_on_and_not_noted() -> None:
    rank = Rank(alone, large_by_dlcpd)
    rank.train(FIRST + SKIPPED - 1)
    rank.calibration.begin(FIRST + SKIPPED)
    noted: list[int] = []
    rank.calibration.note = lambda way, size, seconds: noted.append(size)  # type: ignore[method-assign]

    def fail() -> "Future[torch.Tensor]":
        done: Future[torch.Tensor] = Future()
        done.set_exception(RuntimeError("rank 1 is gone"))  # type: ignore[arg-type]
        return done

    with pytest.raises(RuntimeError, match="rank 1 is gone"):
        rank.calibration.timed(8, fail).wait()
    assert not noted


def test_every_decision_is_said_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    rank = Rank(alone, large_by_dlcpd)
    with caplog.at_level(logging.INFO, "dlcp_client"):
        rank.train(END + MIN_PAUSE // 2)
    [record] = caplog.records
    text = record.getMessage()
    assert "64 B: dlcp 5 ms, backend 10 ms: dlcp" in text
    assert "8 B: dlcp 12 ms, backend 10 ms: backend" in text
    assert text.endswith(f"the next measurement begins in step {rank.calibration.next}")
