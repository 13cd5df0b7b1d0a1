"""Replica digests: any one difference shows, and the book finds who holds another result."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.core.session.digests import (
    BLOCK,
    MAX_NAMED,
    REMEMBERED,
    Digest,
    DigestBook,
    Digester,
    DigestPiece,
)

RANKS = [1, 2, 3]
DIGESTER = Digester(b"key")


def data(size: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


def digest_of(data: np.ndarray, piece: int = 0) -> int:
    return DIGESTER.piece(data, piece)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 20, BLOCK + 3])
@pytest.mark.parametrize("piece", [0, 5])
def test_any_flipped_bit_shows(size: int, piece: int) -> None:
    original = data(size)
    digest = digest_of(original, piece)
    for bit in range(0, 8 * size, max(size // 20, 1)):
        changed = original.copy()
        changed[bit // 8] ^= 1 << bit % 8
        assert digest_of(changed, piece) != digest, f"bit {bit}"


@pytest.mark.parametrize(("a", "b"), [(0, 8), (0, 1408), (8, BLOCK), (0, BLOCK), (4, 2 * BLOCK)])
def test_parts_that_changed_places_show(a: int, b: int) -> None:
    """A sum of words would not see it."""
    original = data(3 * BLOCK)
    changed = original.copy()
    changed[a : a + 8], changed[b : b + 8] = original[b : b + 8], original[a : a + 8]
    assert digest_of(changed) != digest_of(original)


def test_changes_that_cancel_in_a_sum_show() -> None:
    original = np.arange(1000, dtype=np.uint64)
    changed = original.copy()
    changed[[3, 70]] ^= np.uint64(1) << np.uint64(63)  # the sign bit of two
    changed[25] += np.uint64(9)
    changed[26] -= np.uint64(9)
    assert digest_of(changed.view(np.uint8)) != digest_of(original.view(np.uint8))


@pytest.mark.parametrize("size", [8, 64])
def test_pieces_that_changed_places_show(size: int) -> None:
    assert digest_of(data(size), 0) != digest_of(data(size), 1)
    zeros = np.zeros(size, np.uint8)
    assert digest_of(zeros, 0) != digest_of(zeros, 1)


def test_zeros_at_the_end_show() -> None:
    """The last block is filled up with zeros before it is hashed."""
    assert digest_of(np.zeros(5, np.uint8)) != digest_of(np.zeros(6, np.uint8))


def test_another_key_makes_another_digest() -> None:
    """Who does not know the key cannot make a change that keeps the digest."""
    other = Digester(b"another")
    assert other.piece(data(64), 0) != digest_of(data(64))
    assert other.piece(data(BLOCK), 0) != digest_of(data(BLOCK))


@given(st.binary(min_size=1, max_size=64), st.integers(0, (1 << 32) - 1))
def test_a_digest_fits_its_field(raw: bytes, piece: int) -> None:
    digest = digest_of(np.frombuffer(raw, np.uint8), piece)
    assert 0 <= digest < 1 << 64
    assert digest == digest_of(np.frombuffer(raw, np.uint8).copy(), piece)


def test_a_digest_says_what_was_compared() -> None:
    digest = Digest(0, "operation 7 (all_reduce)")
    for number in range(MAX_NAMED + 3):
        digest = digest.plus(1, DigestPiece(number, 64 * number, 64 * number + 64, number % 3))
    assert digest.value == MAX_NAMED + 3
    text = digest.describe()
    assert "operation 7 (all_reduce)" in text
    assert "chunk 2 (bytes 128 to 192, which came here from rank 2)" in text
    assert text.endswith("others were compared") and f"chunk {MAX_NAMED}" not in text


def test_what_a_peer_has_not_confirmed_is_known_until_it_does() -> None:
    book = DigestBook()
    book.add(7, Digest(0xABC), RANKS)
    book.add(8, Digest(0), RANKS)  # nothing of it was looked at
    assert book.unconfirmed(2) == [7]
    assert book.check(2, 7, 0xABC)
    assert book.unconfirmed(2) == [] and book.unconfirmed(1) == [7]
    book.forgo(1, 7)
    assert book.unconfirmed(1) == []


def test_what_came_early_is_confirmed_at_once() -> None:
    book = DigestBook()
    assert book.check(1, 7, 0xABC)
    assert book.add(7, Digest(0xABC), RANKS) is None
    assert book.unconfirmed(1) == [] and book.unconfirmed(2) == [7]


def test_unconfirmed_results_are_bounded() -> None:
    book = DigestBook()
    for number in range(1, 3 * REMEMBERED):
        book.add(number, Digest(1), [1])
    assert len(book.unconfirmed(1)) == REMEMBERED


def test_equal_results_agree_whoever_is_first() -> None:
    book = DigestBook()
    assert book.check(1, 7, 0xABC)  # the peer is ahead
    assert book.add(7, Digest(0xABC), RANKS) is None
    assert book.check(2, 7, 0xABC)


def test_a_peer_with_another_result_is_found_late() -> None:
    book = DigestBook()
    book.add(7, Digest(0xABC), RANKS)
    assert not book.check(2, 7, 0xABD)


def test_a_peer_with_another_result_is_found_early() -> None:
    book = DigestBook()
    assert book.check(1, 7, 0xABC)
    assert book.check(2, 7, 0xABD)
    assert book.check(3, 8, 0x111)
    assert book.add(7, Digest(0xABC), RANKS) == 2


def test_nothing_checked_yet_agrees_with_everything() -> None:
    book = DigestBook()
    assert book.check(1, 0, 0)
    book.add(1, Digest(5), RANKS)
    assert book.check(1, 0, 99)


def test_the_book_is_bounded() -> None:
    book = DigestBook()
    for number in range(1, 10 * REMEMBERED):
        book.add(number, Digest(number), RANKS)
        book.check(1, 1_000_000 + number, 1)
    assert book.size <= 10 * REMEMBERED
    assert book.check(1, 1, 12345)  # forgotten: neither proof nor accusation


def test_every_result_is_told_to_every_peer_once() -> None:
    book = DigestBook()
    assert book.next_for(1) == (0, 0)
    for number in (3, 5, 4):  # in the order in which they were completed
        book.add(number, Digest(100 + number), [1, 2])
    assert [book.next_for(1) for _ in range(4)] == [(3, 103), (5, 105), (4, 104), (0, 0)]
    assert book.next_for(2) == (3, 103)


def test_a_result_is_told_only_to_those_who_have_it() -> None:
    """Ranks of a group that has fewer than the session."""
    book = DigestBook()
    book.add(1, Digest(101), [1])
    book.add(2, Digest(102), [2])
    assert [book.next_for(1), book.next_for(1)] == [(1, 101), (0, 0)]
    assert [book.next_for(2), book.next_for(2)] == [(2, 102), (0, 0)]


def test_what_waits_to_be_told_is_bounded() -> None:
    book = DigestBook()
    for number in range(1, 3 * REMEMBERED + 1):
        book.add(number, Digest(number), [1])
    told = []
    while (row := book.next_for(1)) != (0, 0):
        told.append(row)
    assert told == [(n, n) for n in range(2 * REMEMBERED + 1, 3 * REMEMBERED + 1)]
