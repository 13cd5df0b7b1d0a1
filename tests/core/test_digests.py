"""Replica digests: any one difference shows, and the book finds who holds another result."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.core.session.digests import REMEMBERED, DigestBook, digest_bytes

RANKS = [1, 2, 3]


def data(size: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 20])
@pytest.mark.parametrize("chunk", [0, 5])
def test_any_flipped_bit_shows(size: int, chunk: int) -> None:
    original = data(size)
    digest = digest_bytes(original, chunk)
    for bit in range(8 * size):
        changed = original.copy()
        changed[bit // 8] ^= 1 << bit % 8
        assert digest_bytes(changed, chunk) != digest, f"bit {bit}"


@pytest.mark.parametrize("size", [8, 64])
def test_chunks_that_changed_places_show(size: int) -> None:
    assert digest_bytes(data(size), 0) != digest_bytes(data(size), 1)
    zeros = np.zeros(size, np.uint8)
    assert digest_bytes(zeros, 0) != digest_bytes(zeros, 1)


@given(st.binary(min_size=1, max_size=64), st.integers(0, (1 << 32) - 1))
def test_a_digest_fits_its_field(raw: bytes, chunk: int) -> None:
    digest = digest_bytes(np.frombuffer(raw, np.uint8), chunk)
    assert 0 <= digest < 1 << 64
    assert digest == digest_bytes(np.frombuffer(raw, np.uint8).copy(), chunk)


def test_equal_results_agree_whoever_is_first() -> None:
    book = DigestBook()
    assert book.check(1, 7, 0xABC)  # the peer is ahead
    assert book.add(7, 0xABC, RANKS) is None
    assert book.check(2, 7, 0xABC)


def test_a_peer_with_another_result_is_found_late() -> None:
    book = DigestBook()
    book.add(7, 0xABC, RANKS)
    assert not book.check(2, 7, 0xABD)


def test_a_peer_with_another_result_is_found_early() -> None:
    book = DigestBook()
    assert book.check(1, 7, 0xABC)
    assert book.check(2, 7, 0xABD)
    assert book.check(3, 8, 0x111)
    assert book.add(7, 0xABC, RANKS) == 2


def test_nothing_checked_yet_agrees_with_everything() -> None:
    book = DigestBook()
    assert book.check(1, 0, 0)
    book.add(1, 5, RANKS)
    assert book.check(1, 0, 99)


def test_the_book_is_bounded() -> None:
    book = DigestBook()
    for number in range(1, 10 * REMEMBERED):
        book.add(number, number, RANKS)
        book.check(1, 1_000_000 + number, 1)
    assert book.size <= 10 * REMEMBERED
    assert book.check(1, 1, 12345)  # forgotten: neither proof nor accusation


def test_every_result_is_told_to_every_peer_once() -> None:
    book = DigestBook()
    assert book.next_for(1) == (0, 0)
    for number in (3, 5, 4):  # in the order in which they were completed
        book.add(number, 100 + number, [1, 2])
    assert [book.next_for(1) for _ in range(4)] == [(3, 103), (5, 105), (4, 104), (0, 0)]
    assert book.next_for(2) == (3, 103)


def test_a_result_is_told_only_to_those_who_have_it() -> None:
    """Ranks of a group that has fewer than the session."""
    book = DigestBook()
    book.add(1, 101, [1])
    book.add(2, 102, [2])
    assert [book.next_for(1), book.next_for(1)] == [(1, 101), (0, 0)]
    assert [book.next_for(2), book.next_for(2)] == [(2, 102), (0, 0)]


def test_what_waits_to_be_told_is_bounded() -> None:
    book = DigestBook()
    for number in range(1, 3 * REMEMBERED + 1):
        book.add(number, number, [1])
    told = []
    while (row := book.next_for(1)) != (0, 0):
        told.append(row)
    assert told == [(n, n) for n in range(2 * REMEMBERED + 1, 3 * REMEMBERED + 1)]
