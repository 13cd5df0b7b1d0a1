"""Segments of a chunk, the order they leave in, and which of them are exempt."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.core.transfer.packetizer import (
    exempt_segments,
    natural_order,
    rotated_order,
    segment_count,
)
from dlcpd.core.wire.header import MAX_SEGMENTS


@pytest.mark.parametrize(
    ("size", "count"), [(1, 1), (63, 1), (64, 1), (65, 2), (640, 10), (641, 11)]
)
def test_segment_count(size: int, count: int) -> None:
    assert segment_count(size, 64) == count


@pytest.mark.parametrize("segments", [1, 2, MAX_SEGMENTS])
def test_natural_order_counts(segments: int) -> None:
    assert natural_order(segments).tolist() == list(range(segments))


@given(st.integers(1, MAX_SEGMENTS), st.booleans(), st.integers(0, 1 << 32))
def test_a_rotated_order_is_a_permutation_and_keeps_the_short_tail_last(
    segments: int, short_tail: bool, seed: int
) -> None:
    order = rotated_order(segments, short_tail=short_tail, rng=random.Random(seed))
    assert sorted(order.tolist()) == list(range(segments))
    if short_tail:
        assert order[-1] == segments - 1


def test_seeds_spread_the_victims() -> None:
    """P5: over operations, no position stays at the end of the pass."""
    last = [
        int(rotated_order(16, short_tail=False, rng=random.Random(seed))[-1]) for seed in range(400)
    ]
    counts = np.bincount(last, minlength=16)
    assert counts.min() > 0
    assert counts.max() < 400 / 16 * 3


def test_the_same_seed_gives_the_same_order() -> None:
    one, two = (rotated_order(99, short_tail=True, rng=random.Random(7)) for _ in range(2))
    assert (one == two).all()


def test_rotation_leaves_the_shared_natural_order_alone() -> None:
    rotated_order(8, short_tail=False, rng=random.Random(1))[:] = 0
    assert natural_order(8).tolist() == list(range(8))


def test_no_exempt_range_gives_no_bitmap() -> None:
    assert exempt_segments([], 0, 640, 64) is None
    assert exempt_segments([(640, 700)], 0, 640, 64) is None
    assert exempt_segments([(0, 640)], 640, 640, 64) is None
    assert exempt_segments([(100, 100)], 0, 640, 64) is None


@pytest.mark.parametrize(
    ("ranges", "start", "size", "exempt"),
    [
        ([(0, 1)], 0, 640, [0]),
        ([(63, 65)], 0, 640, [0, 1]),
        ([(64, 128)], 0, 640, [1]),
        ([(639, 640)], 0, 640, [9]),
        ([(0, 10_000)], 640, 130, [0, 1, 2]),
        ([(600, 705), (760, 761)], 640, 130, [0, 1]),
        ([(0, 1), (640 + 128, 640 + 129)], 640, 130, [2]),
    ],
)
def test_a_segment_is_exempt_when_any_of_its_bytes_is(
    ranges: list[tuple[int, int]], start: int, size: int, exempt: list[int]
) -> None:
    bits = exempt_segments(ranges, start, size, 64)
    assert bits is not None
    assert np.flatnonzero(bits).tolist() == exempt
    assert len(bits) == segment_count(size, 64)


@given(
    st.lists(st.tuples(st.integers(0, 999), st.integers(1, 99)), max_size=5),
    st.integers(0, 10),
    st.integers(1, 500),
)
def test_agrees_with_looking_at_every_byte(
    spans: list[tuple[int, int]], chunk: int, size: int
) -> None:
    start = chunk * 64
    ranges = [(low, low + length) for low, length in spans]
    bits = exempt_segments(ranges, start, size, 64)
    marked = {
        (byte - start) // 64
        for low, high in ranges
        for byte in range(low, high)
        if start <= byte < start + size
    }
    assert (set() if bits is None else set(np.flatnonzero(bits).tolist())) == marked
