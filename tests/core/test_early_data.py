"""What came before its operation: kept in order, within bounds, out of io's buffer."""

import numpy as np

from dlcpd.core.room import Room
from dlcpd.core.transfer.early import MAX_CUT, EarlyData
from dlcpd.core.transfer.packetizer import natural_order
from dlcpd.core.wire.header import HEADER_SIZE, Header, Kind
from dlcpd.core.wire.header_batch import build
from dlcpd.core.wire.rows import RowGroup

WIDTH = HEADER_SIZE + 64
STREAM = 3


def op(number: int) -> tuple[int, int]:
    """An operation of the stream of these tests."""
    return STREAM, number


def group(operation: int, fill: int = 1, count: int = 2, *, stream: int = STREAM) -> RowGroup:
    """`count` datagrams in every other row of a receive buffer."""
    header = Header(Kind.DATA, 7, operation, stream)
    rows = np.full((2 * count, WIDTH), fill, np.uint8)
    zeros = np.zeros(count, np.uint8)
    return RowGroup(
        header,
        build(header, natural_order(count), zeros, zeros),
        rows,
        np.arange(0, 2 * count, 2),
        np.full(count, WIDTH),
    )


def test_it_is_kept_in_order_and_given_once() -> None:
    early = EarlyData()
    early.announce(op(3))
    assert early.keep(group(3, fill=1))
    assert early.keep(group(3, fill=2, count=1))
    taken = [kept for kept in early.take(op(3)) if isinstance(kept, RowGroup)]
    assert [int(g.rows[g.index[0], HEADER_SIZE]) for g in taken] == [1, 2]
    assert [g.lengths.tolist() for g in taken] == [[WIDTH, WIDTH], [WIDTH]]
    assert early.take(op(3)) == []
    assert early.size == 0


def test_the_receive_buffer_may_be_used_again() -> None:
    early, arrived = EarlyData(), group(1)
    early.announce(op(1))
    early.keep(arrived)
    for reused in (arrived.rows, arrived.words, arrived.lengths):
        reused[:] = 0
    (kept,) = early.take(op(1))
    assert isinstance(kept, RowGroup)
    assert kept.rows[kept.index].all()
    assert kept.words[0].any()
    assert kept.lengths.all()


def test_what_was_not_announced_is_cut() -> None:
    early = EarlyData()
    assert not early.keep(group(5))
    assert early.was_cut(op(5))
    assert not early.size
    early.announce(op(5))
    assert early.keep(group(5))


def test_what_does_not_fit_is_cut_and_the_rest_stays() -> None:
    early = EarlyData(limit=3 * (WIDTH + 32))
    early.announce(op(1))
    early.announce(op(2))
    assert early.keep(group(1))
    assert not early.keep(group(2))
    assert (early.was_cut(op(1)), early.was_cut(op(2))) == (False, True)
    assert early.take(op(1))
    early.take(op(2))
    assert not early.was_cut(op(2))
    early.announce(op(2))
    assert early.keep(group(2))


def test_a_peer_that_sends_what_nobody_submits_costs_no_memory() -> None:
    early = EarlyData()
    for operation in range(10 * MAX_CUT):
        early.keep(group(operation, count=1))
        assert len(early._cut) <= MAX_CUT  # noqa: SLF001
    assert not early.size


def test_operations_of_other_streams_are_others() -> None:
    early = EarlyData()
    early.announce(op(5))
    assert not early.keep(group(5, stream=STREAM + 1))
    assert early.was_cut((STREAM + 1, 5))
    assert early.keep(group(5))
    assert early.take((STREAM + 1, 5)) == []
    assert len(early.take(op(5))) == 1


# --- data that READY brought ---------------------------------------------------------------------


def test_data_of_ready_share_the_limit_with_those_that_came_alone() -> None:
    early = EarlyData(limit=3 * (WIDTH + 32))
    early.announce(op(1))
    assert early.keep_carried(op(2), WIDTH)
    assert early.keep(group(1))
    assert early.size == early.session.used
    left = early.limit - early.size
    assert not early.keep_carried(op(3), left + 1)
    assert early.keep_carried(op(3), left)
    assert not early.keep_carried(op(4), 1)
    assert early.take(op(2)) == []
    assert early.keep_carried(op(4), WIDTH)
    for number in (1, 3, 4):
        early.take(op(number))
    assert early.size == early.session.used == 0


def test_a_ready_that_comes_again_counts_once_and_as_long_as_it_is_now() -> None:
    early = EarlyData(limit=100)
    assert early.keep_carried(op(1), 60)
    assert early.keep_carried(op(1), 60)
    assert early.size == 60
    assert not early.keep_carried(op(1), 101)
    assert early.size == 60
    assert early.keep_carried(op(1), 100)
    assert early.keep_carried(op(1), 100)  # there is no room for more, and it needs none
    assert early.size == early.session.used == 100
    early.take(op(1))
    assert early.size == early.session.used == 0


def test_a_session_without_room_keeps_no_data_of_ready() -> None:
    early = EarlyData(session=Room(10, used=11))
    assert not early.keep_carried(op(1), 1)
    early.session.used = 0
    assert early.keep_carried(op(1), 1)
    early.session.used = 11
    assert early.keep_carried(op(1), 1)  # it is held already
    assert not early.keep_carried(op(1), 2)
