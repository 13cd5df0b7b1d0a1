"""Holes in packet numbers: counted, and told from datagrams that come late."""

from dlcpd.core.paths.holes import MISTRUST, Holes
from dlcpd.core.paths.paths import Paths
from dlcpd.core.paths.rtt import LEAST_REORDERING
from dlcpd.core.wire.control import EndRow

LATE = 2 * LEAST_REORDERING  # seconds


def test_they_are_counted_by_path_and_class() -> None:
    paths = Paths.new(2)
    paths.rx.on_arrival(0, 4, 5, 5, 0.0)
    paths.rx.on_arrival(1, 4, 2, 2, 0.0)
    assert paths.rx.holes.count == 0
    paths.rx.on_arrival(1, 4, 3, 7, 0.0)
    paths.rx.on_arrival(1, 5, 1, 2, 0.0)
    assert paths.rx.holes.count == 3
    paths.rx.on_arrival(1, 4, 2, 6, 0.0)  # they were only late
    assert paths.rx.holes.count == 1


def test_a_question_shows_those_at_the_end() -> None:
    paths = Paths.new(1)
    paths.rx.on_arrival(0, 4, 5, 5, 0.0)
    paths.rx.on_question(0, 4, 8, 1, 0.0)
    assert paths.rx.holes.count == 3


def test_a_pass_is_delivered_when_each_of_its_paths_brought_its_last_datagram() -> None:
    rx = Paths.new(2).rx
    ends = [EndRow(0, 4, 5), EndRow(1, 4, 7)]
    rx.on_arrival(0, 4, 5, 5, 0.0)
    rx.on_arrival(1, 4, 5, 6, 0.0)
    assert not rx.have_delivered(ends)
    rx.on_arrival(1, 4, 1, 8, 0.0)  # a newer one
    assert rx.have_delivered(ends)
    assert not rx.have_delivered([*ends, EndRow(1, 0, 1)]), "nothing came of that class"
    assert not rx.have_delivered([*ends, EndRow(2, 4, 1)]), "there is no such path"


def test_an_end_that_does_not_ask_shows_holes_and_gets_no_credit() -> None:
    paths = Paths.new(1)
    paths.rx.on_arrival(0, 4, 5, 5, 0.0)
    paths.rx.credits(0.0)
    paths.rx.on_question(0, 4, 8, 1, 0.0, asks=False)
    assert paths.rx.holes.count == 3
    assert not paths.rx.asked


def test_they_are_losses_until_a_datagram_comes_late() -> None:
    holes = Holes()
    holes.on_datagrams(5, 2, 1.0)
    assert holes.are_losses
    holes.on_datagrams(1, -1, 1.0 + LATE)
    assert not holes.are_losses


def test_datagrams_of_one_wake_up_are_not_late() -> None:
    """An engine takes them by transfer, in any order."""
    holes = Holes()
    holes.on_datagrams(5, 2, 1.0)
    holes.on_datagrams(2, -2, 1.0)
    assert holes.are_losses


def test_a_path_that_keeps_the_order_for_long_is_trusted_again() -> None:
    holes = Holes()
    holes.on_datagrams(5, 1, 1.0)
    holes.on_datagrams(1, -1, 1.0 + LATE)
    holes.on_datagrams(MISTRUST - 1, 0, 2.0)
    assert not holes.are_losses
    holes.on_datagrams(1, 0, 2.0)
    assert holes.are_losses
