"""Simulated TCP: bytes arrive once and in order, at the speed that the RFCs let expect."""

import math
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcp_lab.simulation.calendar import Calendar
from dlcp_lab.simulation.cell import SimCondition
from dlcp_lab.simulation.fabric import SimFabric, star
from dlcp_lab.simulation.tcp.bbr import Bbr, BbrState
from dlcp_lab.simulation.tcp.connection import (
    LEAST_TIMEOUT,
    MSS,
    SEGMENT_SIZE,
    Connection,
    segments,
)
from dlcp_lab.simulation.tcp.cubic import BETA, C, Cubic
from dlcp_lab.simulation.tcp.receiver import Receiver
from dlcp_lab.simulation.tcp.ring import ALGORITHMS, tcp_all_reduces
from dlcp_lab.simulation.train import Train

RATE = 50e6


class One:
    """A connection from host 0 to host 1, without a ring; some transmissions are lost."""

    def __init__(
        self, algorithm: str, round_trip: float, lost: frozenset[int] = frozenset(), **plan: float
    ) -> None:
        self.calendar, self.lost, self.departed = Calendar(0.0), lost, 0
        made = star(2, RATE, round_trip, loss=plan.get("loss", 0.0))
        self.fabric = SimFabric(made, self.calendar, self._deliver)
        self.receiver = Receiver(self.fabric, lambda _: None)
        control = ALGORITHMS[algorithm]()
        self.sender = Connection(self.calendar, self.fabric, 0, 1, 0, control, 1, self.receiver)

    def _deliver(self, train: Train) -> None:
        if train.control:
            self.sender.on_ack(int.from_bytes(train.control, "little"))
            return
        self.departed += 1
        if self.departed not in self.lost:
            self.receiver.on_data(train)

    def carry(self, size: int) -> float:
        """Seconds until all has arrived."""
        begun = self.calendar.now
        self.sender.write(size)
        for _ in range(1_000_000):
            if self.receiver.in_order == self.sender.written:
                return self.calendar.now - begun
            self.calendar.step()
        raise AssertionError("livelock")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_without_loss_the_wire_is_full_and_nothing_is_sent_twice(algorithm: str) -> None:
    one = One(algorithm, 0.01)
    taken = one.carry(4 << 20)
    least = segments(4 << 20) * SEGMENT_SIZE * 8 / RATE
    assert least < taken < 1.1 * least + 0.1
    assert one.sender.retransmitted == 0


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(lost=st.frozensets(st.integers(1, 60), max_size=20))
@settings(max_examples=40, deadline=None)
def test_whatever_is_lost_all_arrives(algorithm: str, lost: frozenset[int]) -> None:
    one = One(algorithm, 0.01, lost)
    one.carry(40 * MSS)
    assert len(lost) <= one.sender.retransmitted + len([n for n in lost if n > one.departed])


def test_a_lost_tail_is_repaired_by_a_probe_before_the_timeout() -> None:
    whole = One("cubic", 0.05).carry(10 * MSS)
    cut = One("cubic", 0.05, frozenset({9, 10})).carry(10 * MSS)
    assert whole + 0.05 < cut < LEAST_TIMEOUT + 2 * 0.05


def test_a_segment_that_later_ones_overtake_is_retransmitted_within_a_round_trip() -> None:
    whole = One("cubic", 0.05).carry(10 * MSS)
    cut = One("cubic", 0.05, frozenset({3})).carry(10 * MSS)
    assert whole + 0.04 < cut < whole + 0.06


def test_cubic_reduces_by_its_factor_and_grows_along_its_curve() -> None:
    one = Cubic(window=100.0)
    one.on_loss(0.0)
    assert one.window == pytest.approx(BETA * 100)
    rises = (100 * (1 - BETA) / C) ** (1 / 3)  # RFC 9438, K
    driven = One("cubic", 0.05)
    driven.sender.congestion.window = 100.0
    driven.sender.congestion.on_loss(0.0)
    driven.carry(int(rises * 1.3 * RATE / 8))
    assert driven.sender.congestion.window > 100.0


@pytest.mark.parametrize("loss", [0.002, 0.008])
def test_cubic_keeps_to_the_rate_that_loss_allows(loss: float) -> None:
    """RFC 9438, section 5.1: where Reno-friendly, about MSS / RTT x sqrt(3 / (2 p))."""
    condition = SimCondition(2, 200e6, 0.02, loss, 1, 2 << 20)
    taken = median(
        t
        for seed in (1, 2, 3)
        for t in tcp_all_reduces(condition, "cubic", warmup=2, repeat=4, seed=seed).times
    )
    expected = condition.size * 0.02 / (MSS * math.sqrt(1.5 / loss))
    assert 0.5 < taken / expected < 1.5


def test_bbr_does_not_slow_down_by_random_loss() -> None:
    condition = SimCondition(2, RATE, 0.02, 0.01, 1, 2 << 20)
    bbr, cubic = (
        median(tcp_all_reduces(condition, name, warmup=2, repeat=6, seed=1).times)
        for name in ("bbr", "cubic")
    )
    assert bbr < 1.4 * condition.size * 8 / RATE < cubic / 4


def test_bbr_finds_the_rate_of_the_wire() -> None:
    one = One("bbr", 0.02)
    one.carry(4 << 20)
    control = one.sender.congestion
    assert isinstance(control, Bbr) and control.state is BbrState.PROBE_BW
    assert control.rate == pytest.approx(RATE / 8 / SEGMENT_SIZE, rel=0.1)


def test_the_same_seed_gives_the_same_times() -> None:
    condition = SimCondition(4, 1e9, 0.001, 0.01, 8, 256 << 10)
    first, again = (
        tcp_all_reduces(condition, "bbr", warmup=1, repeat=3, seed=7).times for _ in range(2)
    )
    assert first == again
