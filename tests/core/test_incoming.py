"""Placement: right payloads land in place, nothing is written beyond the transfer (P7)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcpd.collectives.segment_sum import SegmentSum
from dlcpd.core.transfer.incoming import Incoming
from dlcpd.core.transfer.receiver import TransferReceiver
from dlcpd.core.wire.header import HEADER_SIZE, Key

SEGMENT = 64
WIDTH = HEADER_SIZE + SEGMENT
MARGIN, CANARY = 256, 0xEE


class Place:
    """A transfer of `size` bytes in the middle of memory that nobody may touch."""

    def __init__(self, size: int) -> None:
        self.memory = np.full(size + 2 * MARGIN, CANARY, np.uint8)
        self.buffer = self.memory[MARGIN : MARGIN + size]
        self.buffer[:] = 0
        segments = -(-size // SEGMENT)
        self.incoming = Incoming(Key(0, 1, 0), 1, TransferReceiver(segments), self.buffer, SEGMENT)

    def put(self, index: list[int], lengths: list[int], segments: list[int]) -> list[int]:
        rows = np.arange(1, 200, dtype=np.uint8)[:, None].repeat(WIDTH, axis=1)  # row i holds i + 1
        good = self.incoming.put(
            rows, np.array(index, np.intp), np.array(lengths, np.intp), np.array(segments, np.intp)
        )
        placed: list[int] = good.tolist()
        return placed

    @property
    def untouched(self) -> bool:
        around = np.concatenate([self.memory[:MARGIN], self.memory[-MARGIN:]])
        return bool((around == CANARY).all())

    def segment(self, number: int) -> np.ndarray:
        return self.buffer[number * SEGMENT : (number + 1) * SEGMENT]


@pytest.mark.parametrize("segments", [[0, 1, 2], [1, 2, 3], [3, 1, 0], [2]])
@pytest.mark.parametrize("first", [0, 5])
def test_whole_segments_land_in_their_places(segments: list[int], first: int) -> None:
    place = Place(4 * SEGMENT)
    index = list(range(first, first + len(segments)))
    assert place.put(index, [WIDTH] * len(segments), segments) == segments
    for row, segment in zip(index, segments, strict=True):
        assert (place.segment(segment) == row + 1).all()
    assert np.count_nonzero(place.buffer) == len(segments) * SEGMENT


def test_rows_with_gaps_between_them() -> None:
    place = Place(4 * SEGMENT)
    assert place.put([2, 7, 9], [WIDTH] * 3, [0, 1, 2]) == [0, 1, 2]
    assert [int(place.segment(s)[0]) for s in range(4)] == [3, 8, 10, 0]


@pytest.mark.parametrize("tail", [1, 4, 63])
def test_a_short_tail(tail: int) -> None:
    place = Place(2 * SEGMENT + tail)
    assert place.put([0, 1, 2], [WIDTH, WIDTH, HEADER_SIZE + tail], [0, 1, 2]) == [0, 1, 2]
    assert (place.segment(2) == 3).all()
    assert place.untouched


def test_a_tail_that_comes_first() -> None:
    place = Place(2 * SEGMENT + 10)
    assert place.put([0, 1], [HEADER_SIZE + 10, WIDTH], [2, 1]) == [2, 1]
    assert (place.segment(2) == 1).all()
    assert (place.segment(1) == 2).all()
    assert place.untouched


def test_a_transfer_of_only_a_tail() -> None:
    place = Place(5)
    assert place.put([4], [HEADER_SIZE + 5], [0]) == [0]
    assert (place.buffer == 5).all()
    assert place.untouched


@pytest.mark.parametrize(
    ("length", "segment"),
    [
        pytest.param(WIDTH, 2, id="full where the tail is short"),
        pytest.param(HEADER_SIZE + 10, 0, id="short where it is full"),
        pytest.param(HEADER_SIZE + 10, 3, id="behind the tail"),
        pytest.param(WIDTH, 3, id="first segment the transfer has not"),
        pytest.param(WIDTH, 4095, id="largest segment of the wire"),
        pytest.param(HEADER_SIZE, 0, id="no payload"),
        pytest.param(HEADER_SIZE + 9, 2, id="tail short by one"),
        pytest.param(HEADER_SIZE + 11, 2, id="tail long by one"),
        pytest.param(WIDTH + 1, 0, id="longer than a row"),
    ],
)
def test_what_does_not_fit_is_left_out_and_the_rest_is_not(length: int, segment: int) -> None:
    place = Place(2 * SEGMENT + 10)
    assert place.put([0, 1], [length, WIDTH], [segment, 1]) == [1]
    assert (place.segment(1) == 2).all()
    assert np.count_nonzero(place.buffer) == SEGMENT
    assert place.untouched


@pytest.mark.parametrize("length", [HEADER_SIZE, HEADER_SIZE + 1])
def test_a_transfer_without_a_tail_takes_no_short_segment(length: int) -> None:
    place = Place(2 * SEGMENT)
    assert place.put([0], [length], [2]) == []
    assert place.untouched


datagrams = st.lists(
    st.tuples(
        st.one_of(st.sampled_from([WIDTH, HEADER_SIZE, HEADER_SIZE + 10]), st.integers(0, 200)),
        st.one_of(st.integers(0, 6), st.integers(0, 4095)),
    ),
    min_size=1,
    max_size=40,
)


@given(st.integers(1, 5 * SEGMENT), datagrams)
@settings(max_examples=200)
def test_nothing_is_ever_written_outside_the_transfer(
    size: int, garbage: list[tuple[int, int]]
) -> None:
    place = Place(size)
    lengths, segments = (list(column) for column in zip(*garbage, strict=True))
    good = place.put(list(range(len(garbage))), lengths, segments)
    assert place.untouched
    assert set(good) <= set(range(-(-size // SEGMENT)))
    written = {number for number in range(-(-size // SEGMENT)) if place.segment(number).any()}
    assert written == set(good)


@pytest.mark.parametrize("extra", [-64, 64])
def test_rows_of_another_peers_segment_size(extra: int) -> None:
    """io's rows are as wide as what came most, and no peer's segments need be that long."""
    place = Place(3 * SEGMENT + 8)
    width = WIDTH + extra
    rows = np.full((4, width), 7, np.uint8)
    index, segments = np.arange(3), np.array([0, 3, 1])
    lengths = np.array([min(WIDTH, width), HEADER_SIZE + 8, HEADER_SIZE + 9])
    if width < HEADER_SIZE + 8:
        lengths = np.minimum(lengths, width)
    good = place.incoming.put(rows, index, lengths, segments)
    assert good.tolist() == ([0, 3] if extra > 0 else [])
    assert place.untouched


@pytest.mark.parametrize("last", [True, False])
def test_the_last_operand_of_a_sum_is_added_from_where_it_is(last: bool) -> None:
    """Of a rank of the same process; the others wait in memory of this rank's."""
    place, payload = Place(2 * SEGMENT), np.full(2 * SEGMENT, 7, np.uint8)
    total = SegmentSum(np.zeros(2 * SEGMENT, np.uint8), [payload, place.buffer], 1, SEGMENT)
    place.incoming.sum, place.incoming.operand, place.incoming.last = total, 1, last
    place.incoming.fill(payload, 0.0)
    assert (total.operands[1] is payload) == last
    assert (place.buffer == 7).all() == (not last)
    assert not place.incoming.receiver.missing


def test_what_is_no_operand_is_copied_whole() -> None:
    place = Place(SEGMENT)
    place.incoming.last = True
    place.incoming.fill(np.full(SEGMENT, 7, np.uint8), 0.0)
    assert (place.buffer == 7).all()
