"""Datagrams in pieces: whole again in any order, and nothing else from any bytes."""

import contextlib
import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.contract.errors import MalformedDatagram
from dlcpd.core.paths.pieces import (
    LEAST_PIECE,
    LONGEST,
    MAX_PARTIAL,
    MAX_PIECES,
    OVERHEAD,
    Reassembly,
    cut,
)
from dlcpd.core.wire.header import HEADER_SIZE, Header, Kind

HEAD = Header(Kind.DATA, 0xABCD, 3, 9, 5, tag=7, path=2)


def datagram(size: int, seed: int = 0) -> bytes:
    return HEAD.pack() + random.Random(seed).randbytes(size - HEADER_SIZE)


def piece(number: int, total: int, offset: int, part: bytes) -> bytes:
    return HEAD._replace(kind=Kind.PIECE).pack() + struct.pack("<IHH", number, total, offset) + part


@pytest.mark.parametrize("size", [0, 512, 1184, 1376])
@pytest.mark.parametrize("length", [HEADER_SIZE + 1, 512, 1184, 1440, LONGEST])
def test_pieces_in_any_order_make_the_datagram(length: int, size: int) -> None:
    whole = datagram(length)
    pieces = list(cut(whole, 1, size))
    assert all(len(each) <= max(size, LEAST_PIECE) for each in pieces)
    assert len(pieces) <= MAX_PIECES
    for each in pieces:
        assert Header.unpack_untrusted(each) == HEAD._replace(kind=Kind.PIECE)
    random.Random(length).shuffle(pieces)
    book = Reassembly()
    got = [book.add(each) for each in pieces]
    assert got == [None] * (len(pieces) - 1) + [whole]


def test_nobody_speaks_for_another_flow_in_pieces() -> None:
    """Each piece has proved whose it is; what they make together has to be of the same flow."""
    foreign = HEAD._replace(token=HEAD.token + 1).pack() + bytes(8)
    with pytest.raises(MalformedDatagram, match="token"):
        Reassembly().add(piece(1, len(foreign), 0, foreign))


def test_datagrams_do_not_mix() -> None:
    book, first, second = Reassembly(), datagram(1440, 1), datagram(1440, 2)
    pairs = zip(cut(first, 1, 1184), cut(second, 2, 1184), strict=True)
    got = [book.add(each) for pair in pairs for each in pair]
    assert [each for each in got if each] == [first, second]


def test_a_piece_that_comes_twice_counts_once() -> None:
    book, whole = Reassembly(), datagram(1440)
    first, second = cut(whole, 1, 1184)
    assert [book.add(first), book.add(first), book.add(second)] == [None, None, whole]


def test_what_stays_incomplete_is_bounded() -> None:
    """The newest are kept: what has waited longest is lost already."""
    book, last = Reassembly(), []
    for number in range(2 * MAX_PARTIAL):
        first, second = cut(datagram(1440), number, 1184)
        assert book.add(first) is None
        last.append(second)
    assert [book.add(each) for each in last[MAX_PARTIAL:]] == [datagram(1440)] * MAX_PARTIAL
    assert book.add(last[0]) is None


def test_pieces_of_one_datagram_are_bounded() -> None:
    book = Reassembly()
    for offset in range(MAX_PIECES):
        book.add(piece(1, LONGEST, offset, b"x"))
    with pytest.raises(MalformedDatagram):
        book.add(piece(1, LONGEST, MAX_PIECES, b"x"))


@pytest.mark.parametrize(
    ("total", "offset", "length"),
    [(LONGEST + 1, 0, 100), (100, 1, 100), (100, 0xFFFF, 1), (0, 0, 1), (100, 0, 0)],
)
def test_a_piece_outside_its_datagram_is_refused(total: int, offset: int, length: int) -> None:
    with pytest.raises(MalformedDatagram):
        Reassembly().add(piece(1, total, offset, bytes(length)))


def test_pieces_that_overlap_make_nothing() -> None:
    book = Reassembly()
    assert book.add(piece(1, 100, 0, bytes(60))) is None
    with pytest.raises(MalformedDatagram, match="overlap"):  # counted, as all that is refused
        book.add(piece(1, 100, 30, bytes(40)))


@given(st.lists(st.binary(max_size=OVERHEAD + 64), max_size=20))
def test_any_bytes_are_taken_or_refused(datagrams: list[bytes]) -> None:
    book = Reassembly()
    for data in datagrams:
        with contextlib.suppress(MalformedDatagram):
            assert len(book.add(data) or b"") <= LONGEST
