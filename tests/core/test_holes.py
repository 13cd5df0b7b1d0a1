"""Holes in packet numbers: counted, and told from datagrams that come late."""

from dlcpd.core.paths.holes import MISTRUST, Holes
from dlcpd.core.paths.paths import Paths
from dlcpd.core.paths.rtt import LEAST_REORDERING

LATE = 2 * LEAST_REORDERING  # seconds


def test_they_are_counted_by_path_and_class() -> None:
    paths = Paths.new(2)
    paths.on_arrival(0, 4, 5, 5, 0.0)
    paths.on_arrival(1, 4, 2, 2, 0.0)
    assert paths.holes.count == 0
    paths.on_arrival(1, 4, 3, 7, 0.0)
    paths.on_arrival(1, 5, 1, 2, 0.0)
    assert paths.holes.count == 3
    paths.on_arrival(1, 4, 2, 6, 0.0)  # they were only late
    assert paths.holes.count == 1


def test_a_question_shows_those_at_the_end() -> None:
    paths = Paths.new(1)
    paths.on_arrival(0, 4, 5, 5, 0.0)
    paths.on_question(0, 4, 8, 1, 0.0)
    assert paths.holes.count == 3


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
