"""One packet number space from both ends: numbers wrap, stale credits change nothing."""

from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.core.paths.newest import microseconds
from dlcpd.core.paths.space import (
    MAX_AHEAD,
    OLDEST_ECHO,
    SpaceReceiver,
    SpaceSender,
    unwrap,
)
from dlcpd.core.wire.control import SpaceCredit
from dlcpd.core.wire.header import ASK

WRAP = 1 << 32
MS = 1e-3


def credit(
    largest: int, received: int, *, echo: int = 0, held: int = 0, arrived: int = 0
) -> SpaceCredit:
    return SpaceCredit(0, 4, 0, largest % WRAP, received % WRAP, echo, held, arrived)


def sender(sent: int, acked: int = 0) -> SpaceSender:
    return SpaceSender(sent=sent, acked=acked, arrived=acked)


@pytest.mark.parametrize(
    ("pace", "marks"), [(0.0, 8), (100.0, 2), (500.0, 2), (1000.0, 4), (2500.0, 8)]
)
def test_a_slow_link_carries_fewer_datagrams_that_ask(pace: float, marks: int) -> None:
    """Each comes by itself, and has a CREDIT of its own. 500 datagrams per second are 6 Mb/s."""
    sending = sender(16)
    sending.congestion.window, sending.congestion.pace = 64.0, pace
    flags = np.zeros(16, np.uint8)  # a quarter of the window
    sending.ask(flags, 64, 1440)
    assert np.flatnonzero(flags & ASK).tolist() == list(range(16 - marks, 16))


# --- numbers on the wire ------------------------------------------------------------


@given(st.integers(0, 1 << 40), st.integers(-(1 << 31), (1 << 31) - 1))
def test_unwrap_finds_the_number_next_to_what_is_known(near: int, step: int) -> None:
    number = near + step
    assert unwrap(number % WRAP, near) == number


@pytest.mark.parametrize(
    ("number", "near", "full"),
    [
        (0, WRAP - 1, WRAP),
        (WRAP - 1, WRAP, WRAP - 1),
        (5, 3 * WRAP + 1, 3 * WRAP + 5),
        (1 << 31, 0, -(1 << 31)),
        ((1 << 31) - 1, 0, (1 << 31) - 1),
    ],
)
def test_unwrap_at_the_seams(number: int, near: int, full: int) -> None:
    assert unwrap(number, near) == full


def test_the_clock_wraps_every_71_minutes() -> None:
    assert microseconds(0.0015) == 1500
    assert microseconds(WRAP * 1e-6 + 7e-6) in (6, 7)


# --- the sending end ------------------------------------------------------------------


def test_a_credit_takes_packets_out_of_flight() -> None:
    path = sender(100)
    assert path.on_credit(credit(60, 58), now=1.0) == 60
    assert (path.in_flight, path.lost, path.arrived) == (40, 2, 58)
    assert path.on_credit(credit(100, 98), now=1.0) == 40
    assert (path.in_flight, path.lost) == (0, 2)


def test_room_is_the_window_less_what_is_in_flight() -> None:
    path = sender(10)
    assert path.window_room == int(path.congestion.window) - 10
    path.on_credit(credit(10, 10), 1.0)
    assert path.window_room == int(path.congestion.window)


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(credit(49, 50), id="older largest"),
        pytest.param(credit(80, 49), id="fewer arrivals than known"),
        pytest.param(credit(101 + MAX_AHEAD, 60), id="never sent"),
        pytest.param(credit(1 << 31, 60), id="half the number space ahead"),
        pytest.param(credit(-1, 60), id="before the first"),
    ],
)
def test_a_stale_or_impossible_credit_changes_nothing(row: SpaceCredit) -> None:
    path = sender(100, acked=50)
    before = asdict(path)
    assert path.on_credit(row, 1.0) == 0
    assert asdict(path) == before


def test_a_peer_that_was_told_of_packets_to_come_has_all_that_were_sent() -> None:
    """Else no later credit of it would count, and the window would stay shut for ever."""
    path = sender(100, acked=50)
    assert path.on_credit(credit(100 + MAX_AHEAD, 60), 1.0) == 50
    assert path.in_flight == 0


def test_an_answer_is_one_that_nobody_has_given_before() -> None:
    path = sender(100, acked=50)
    assert path.is_answer(credit(60, 60), 100.0)
    path.on_credit(credit(60, 60), 100.0)
    assert not path.is_answer(credit(60, 60), 100.0)
    first, second = credit(60, 60, echo=microseconds(99.0)), credit(60, 60, echo=microseconds(99.5))
    assert path.is_answer(first, 100.0)
    assert not path.is_answer(first, 100.1)
    assert path.is_answer(second, 100.2)
    assert not path.is_answer(first, 100.3), "older than one that was here"
    assert not path.is_answer(second, 100.2 + 2 * OLDEST_ECHO), "older than any ping still counts"
    later = 100.2 + 3000.0  # more than half of what the stamps can count
    assert path.is_answer(credit(60, 60, echo=microseconds(later)), later)


def test_a_credit_again_takes_nothing_out_of_flight() -> None:
    path = sender(100)
    path.on_credit(credit(60, 60), 1.0)
    assert path.on_credit(credit(60, 60), 1.0) == 0
    assert (path.in_flight, path.lost) == (40, 0)


def test_numbers_wrap_in_the_middle_of_a_flow() -> None:
    path = sender(WRAP + 50, acked=WRAP - 20)
    assert path.on_credit(credit(WRAP + 30, WRAP + 28), 1.0) == 50
    assert (path.in_flight, path.acked) == (20, WRAP + 30)


def test_a_packet_that_came_late_is_no_longer_lost() -> None:
    path = sender(100)
    path.on_credit(credit(100, 90), 1.0)
    assert path.lost == 10
    path.on_credit(credit(100, 97), 1.0)
    assert path.lost == 3


def test_duplicates_on_the_path_are_not_negative_loss() -> None:
    path = sender(100)
    path.on_credit(credit(50, 60), 1.0)
    assert path.lost == 0


def test_the_round_trip_leaves_out_what_the_receiver_held_back() -> None:
    path = sender(10)
    path.on_credit(credit(10, 10, echo=microseconds(1.0), held=3000), 1.005)
    assert path.rtt.minimum == pytest.approx(2 * MS, abs=1e-5)


def test_a_credit_without_echo_measures_nothing() -> None:
    path = sender(10)
    path.on_credit(credit(10, 10, echo=0), 1.005)
    assert path.rtt.minimum == float("inf")
    assert path.in_flight == 0


def test_delay_is_what_changes_on_the_way_there() -> None:
    """The clocks are 40 s apart, and this host took half a second to look at the answer."""
    path = sender(192)
    for number, transit in ((64, 40_000_100), (128, 40_000_900), (192, 40_000_050)):
        sent_at = microseconds(number / 10)
        row = credit(number, number, echo=sent_at, arrived=(sent_at + transit) % WRAP)
        path.on_credit(row, now=number / 10 + 0.5)
    assert path.congestion.base_delay == pytest.approx(-50e-6)
    assert path.congestion.round_trip == pytest.approx(0.5, rel=0.01)


def test_an_echo_of_nothing_we_sent_is_no_measurement() -> None:
    path = sender(10)
    path.on_credit(credit(10, 10, echo=microseconds(1.0)), now=1.0 + OLDEST_ECHO + 1)
    assert not path.rtt.measured
    assert path.congestion.base_delay == float("inf")


def test_clocks_that_wrap_are_no_delay() -> None:
    path = sender(128)
    path.on_credit(credit(64, 64, echo=WRAP - 10, arrived=WRAP - 3), now=1.0)
    path.on_credit(credit(128, 128, echo=WRAP - 4, arrived=5), now=1.0)
    assert path.congestion.base_delay == pytest.approx(0.0)
    assert path.congestion.queue_delay == pytest.approx(2e-6)


u32 = st.integers(0, WRAP - 1)


@given(st.lists(st.tuples(u32, u32, u32, u32)), st.integers(0, 1 << 33))
def test_no_sequence_of_credits_breaks_the_books(
    rows: list[tuple[int, int, int, int]], sent: int
) -> None:
    path = sender(sent)
    for largest, received, echo, held in rows:
        path.on_credit(SpaceCredit(0, 4, 0, largest, received, echo, held, echo ^ held), 1.0)
        assert 0 <= path.acked <= path.sent
        assert path.lost >= 0
        assert path.congestion.window >= 1


# --- the receiving end -----------------------------------------------------------------


def test_a_number_far_ahead_is_no_packet_of_this_space() -> None:
    path = SpaceReceiver()
    assert path.on_datagrams(4, 4)
    assert not path.on_datagrams(1, 5 + MAX_AHEAD)
    assert (path.largest, path.received) == (4, 4)
    assert path.on_datagrams(1, 4 + MAX_AHEAD)


def test_what_comes_again_changes_nothing() -> None:
    path = SpaceReceiver()
    assert path.on_datagrams(4, 5)
    before = asdict(path)
    for number in (1, 4, 5, 5 + MAX_AHEAD + 1):
        assert not path.on_datagrams(2, number, 1, useful=False)
    assert asdict(path) == before


def test_what_is_of_no_use_counts_for_no_more_packets_than_it_is() -> None:
    """Under whatever number: the peer goes on, and after as many packets all is as it would be."""
    path = SpaceReceiver(largest=4, received=4)
    assert path.on_datagrams(2, 4000, useful=False)
    assert (path.largest, path.received) == (6, 6)
    path.on_datagrams(2, 6)
    path.on_datagrams(2, 8)
    assert (path.largest, path.received) == (8, 8)


def test_what_came_twice_hides_no_hole_to_come() -> None:
    path = SpaceReceiver(largest=4, received=4)
    path.on_datagrams(1, 4)
    path.on_datagrams(1, 6)
    assert (path.largest, path.received) == (6, 5)


def test_a_question_that_was_sent_before_something_that_came_counts_for_nothing() -> None:
    path = SpaceReceiver(largest=4, received=4)
    assert path.on_question(7, 5000, 1.0)
    assert (path.largest, path.received, path.echo) == (7, 4, 5000)
    for stamp in (4999, 0):
        assert not path.on_question(100, stamp, 1.5)
    assert path.largest == 7
    assert path.on_question(8, 5001, 1.5)


def test_the_largest_number_survives_reordering_and_wrap() -> None:
    path = SpaceReceiver(largest=WRAP - 3, received=7)
    path.on_datagrams(4, 1)
    path.on_datagrams(2, WRAP - 1)
    assert (path.largest, path.received, path.pending) == (WRAP + 1, 13, 6)
    assert path.credit(0, 4, 1.0).largest == 1


def test_a_credit_echoes_the_newest_stamp_once() -> None:
    path = SpaceReceiver()
    path.on_datagrams(2, 2)
    path.on_stamp(400, 0.9)
    path.on_stamp(500, 1.0)
    row = path.credit(3, 4, now=1.002)
    assert (row.path, row.echo, row.held) == (3, 500, 2000)
    assert path.pending == 0
    assert path.credit(3, 4, now=1.003).echo == 0


def test_without_a_stamp_nothing_was_held() -> None:
    space = SpaceReceiver()
    space.on_datagrams(1, 1)
    assert space.credit(0, 4, now=1e6).held == 0
    space.on_stamp(7, 0.0)
    assert space.credit(0, 4, now=1e6).held == WRAP - 1


def test_a_ping_is_answered_though_nothing_arrived() -> None:
    path = SpaceReceiver()
    path.on_datagrams(0, 9)
    path.asked = True
    path.on_stamp(77, 1.0)
    assert path.asked
    assert path.credit(0, 4, 1.0) == SpaceCredit(0, 4, 0, 9, 0, 77, 0, microseconds(1.0))
    assert not path.asked


def test_counts_beyond_32_bits_still_fit_a_credit() -> None:
    sender_, receiver = sender(WRAP + 10, acked=WRAP), SpaceReceiver(WRAP, WRAP)
    receiver.on_datagrams(10, 10)
    row = receiver.credit(0, 4, 1.0)
    packed = SpaceCredit(0, 4, 0, row.largest, row.received % WRAP, 0, 0, 0)
    assert sender_.on_credit(packed, 1.0) == 10
    assert sender_.lost == 0


def test_marks_are_counted_although_their_number_wraps() -> None:
    space, receiver = sender(100), SpaceReceiver(marked=(1 << 16) - 2)
    space.marked = (1 << 16) - 2
    receiver.on_datagrams(10, 10, marked=5)
    space.on_credit(receiver.credit(0, 4, 1.0), 1.0)
    assert space.marked == (1 << 16) + 3


def test_a_credit_cannot_mark_more_than_arrived() -> None:
    space = sender(100)
    space.on_credit(SpaceCredit(0, 4, 60_000, 10, 10, 0, 0, 0), 1.0)
    assert space.marked == 10


def test_a_late_arrival_is_no_loss_but_the_count_that_only_grows_stays() -> None:
    space = sender(10)
    space.on_credit(credit(10, 8), 1.0)
    assert (space.lost, space.lost_at_most) == (2, 2)
    space.on_credit(credit(10, 9), 1.1)
    assert (space.lost, space.lost_at_most) == (1, 2)
