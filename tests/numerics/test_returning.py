"""Residuals come back as far as they fit, to the byte they came from; the rest waits, exactly.

The reference is Python's fractions: what was there, plus what was brought, is what is there now
plus what remains.
"""

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcpd.core.wire.datagram import Bytes
from dlcpd.numerics.elements import COMPLEX, LARGEST, NARROW, STORAGE, narrow, wide, widen
from dlcpd.numerics.residual import WHOLE, Hole, cut
from dlcpd.numerics.returning import BLOCK, add_back, share_of_range

SEGMENT = 64
REAL = sorted(LARGEST)
FLOATS = [*REAL, *COMPLEX]
SCALES = [2.0**-126, 0.25, 1.0, 3.0, 65536.0, 2.0**127]


def stored(numbers: Any, dtype: str) -> np.ndarray:
    return narrow(np.asarray(numbers, wide(dtype)), dtype)


def whole(values: Any, dtype: str, scale: float = 1.0, at: int = 0) -> Hole:
    """All of a tensor, or of its end from element `at` on, as one hole."""
    kept, item = np.asarray(values, wide(dtype)), STORAGE[dtype].itemsize
    return Hole(at * item, WHOLE, len(kept) * item, kept, scale)


def laid_out(holes: list[Hole], count: int, dtype: str, scale: float) -> list[Fraction]:
    """The values of holes, in the present scale, by element of a tensor."""
    total, item = [Fraction(0)] * count, STORAGE[dtype].itemsize
    for hole in holes:
        at, factor = 0, Fraction(scale) / Fraction(hole.scale)
        for segment in hole.segments.tolist():
            low = (hole.start + segment * hole.segment_size) // item
            for value in hole.values[at : at + hole.segment_size // item].tolist():
                total[low] += Fraction(value) * factor
                low, at = low + 1, at + 1
    return total


def fractions(tensor: np.ndarray, dtype: str) -> list[Fraction]:
    return [Fraction(number) for number in widen(tensor, dtype).tolist()]


def near_the_limit(rng: np.random.Generator, dtype: str, count: int) -> np.ndarray:
    """Finite values of all sizes that the type has, its largest among them."""
    low, high = {"float16": (-8, 4.8), "float64": (-300, 308)}.get(dtype, (-38, 38.5))
    with np.errstate(over="ignore"):
        drawn = 10.0 ** rng.uniform(low, high, count) * rng.choice([-1, 1], count)
        drawn[rng.random(count) < 0.3] = LARGEST[dtype] * rng.choice([-1, 1])
    clipped = np.clip(drawn, -LARGEST[dtype], LARGEST[dtype])
    found: np.ndarray = clipped.astype(wide(dtype)).clip(-LARGEST[dtype], LARGEST[dtype])
    return found


@given(
    st.sampled_from(REAL),
    st.integers(1, 200),
    st.lists(st.sampled_from(SCALES), max_size=3),
    st.sampled_from(SCALES),
    st.integers(0, 1 << 20),
)
@settings(max_examples=300, deadline=None)
def test_finite_values_stay_finite_and_nothing_is_lost(
    dtype: str, count: int, kept: list[float], present: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    tensor = stored(near_the_limit(rng, dtype, count), dtype)
    before = fractions(tensor, dtype)
    holes = []
    for scale in kept:
        values = stored(near_the_limit(rng, dtype, count), dtype).view(np.uint8)
        segments = np.flatnonzero(rng.random(-(-len(values) // SEGMENT)) < 0.5)
        if len(segments):
            holes.append(cut(values, 0, segments, SEGMENT, dtype, scale=scale))
    brought = laid_out(holes, count, dtype, present)
    moved = [0 * value for value in brought]  # by element: all magnitudes together
    for hole in holes:
        one = laid_out([hole], count, dtype, present)
        moved = [a + abs(b) for a, b in zip(moved, one, strict=True)]
    rest = add_back(tensor.view(np.uint8), holes, dtype, present)
    assert np.isfinite(widen(tensor, dtype)).all()
    assert all(np.isfinite(hole.values).all() for hole in rest)
    starts = [(hole.start, hole.segment_size) for hole in rest]
    assert all(a + size <= b for (a, size), (b, _) in pairwise(starts))
    left = laid_out(rest, count, dtype, present)
    digits = Fraction(float(np.finfo(wide(dtype)).eps))
    least = Fraction(2) ** (-700 if dtype == "float64" else -140) + max(moved) / 2**250
    now = fractions(tensor, dtype)
    for at in range(count):  # one rounding for each hole: in the type that is computed in
        allowed = 2 * digits * (abs(before[at]) + moved[at]) + least
        assert abs(before[at] + brought[at] - now[at] - left[at]) <= allowed


@pytest.mark.parametrize("dtype", sorted(NARROW))
def test_what_a_16_bit_float_rounds_away_waits_until_it_counts(dtype: str) -> None:
    """A residual of a thousandth of a digit comes back after a thousand steps, to the bit."""
    count, digit = 40, 2.0**-10 if dtype == "float16" else 2.0**-7
    holes = [whole(np.full(count, digit / 1024), dtype)]
    total = Fraction(0)
    for _ in range(1500):
        tensor = stored(np.ones(count), dtype)
        rest = add_back(tensor.view(np.uint8), holes, dtype)
        total += fractions(tensor, dtype)[0] - 1
        holes = [*rest, whole(np.full(count, digit / 1024), dtype)]
    assert total == 1500 * Fraction(digit) / 1024 - laid_out(rest, count, dtype, 1.0)[0]
    assert total >= Fraction(digit)


@pytest.mark.parametrize("dtype", FLOATS)
def test_what_does_not_fit_comes_back_step_by_step(dtype: str) -> None:
    real = COMPLEX.get(dtype, dtype)
    top, rest = LARGEST[real], [whole(np.full(64, LARGEST[real]), real)]
    found = []
    for _ in range(3):
        tensor = stored(np.full(64, top / 2), real)
        rest = add_back(tensor.view(STORAGE[dtype]).view(np.uint8), rest, dtype)
        [value] = set(widen(tensor, real).tolist())
        found.append(value)
    np.testing.assert_allclose(found, [top, top, top / 2], rtol=1e-15)
    assert not rest


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_stays_none_and_its_residual_waits(dtype: str, bad: float) -> None:
    tensor = stored([bad, 1.0, *[0.0] * 62], dtype)
    bits = tensor[:1].tobytes()
    rest = add_back(tensor.view(np.uint8), [whole(np.full(64, 2.0), dtype)], dtype)
    assert tensor[:1].tobytes() == bits
    assert widen(tensor, dtype)[1:3].tolist() == [3.0, 2.0]
    assert laid_out(rest, 64, dtype, 1.0) == [2, *[0] * 63]


@pytest.mark.parametrize("dtype", REAL)
def test_a_sum_is_raised_to_a_share_of_the_range_only(dtype: str) -> None:
    most = share_of_range(dtype, "sum", 4)
    assert most == LARGEST[dtype] / 4 and share_of_range(dtype, "avg", 4) == LARGEST[dtype]
    own = [LARGEST[dtype] / 8, LARGEST[dtype] / 2, -LARGEST[dtype] / 2, LARGEST[dtype] / 2]
    tensor = stored(own, dtype)
    more = [LARGEST[dtype] / 2] * 3 + [-LARGEST[dtype] / 2]
    rest = add_back(tensor.view(np.uint8), [whole(more, dtype)], dtype, most=most)
    np.testing.assert_allclose(widen(tensor, dtype), [most, own[1], 0, 0], rtol=1e-2)
    assert np.count_nonzero(rest[0].values) == 2


def test_a_part_that_does_not_fit_takes_nothing_from_the_others() -> None:
    """Of one hole, by segments; and bit for bit the plain addition where all fits."""
    rng = np.random.default_rng(3)
    numbers, more = (rng.normal(size=2000).astype(np.float32) for _ in range(2))
    numbers[100], more[100] = LARGEST["float32"], 1e38
    with np.errstate(over="ignore"):
        expected = numbers + more
    segments = np.arange(0, 125, 2)
    hole = cut(more.view(np.uint8), 0, segments, SEGMENT, "float32")
    tensor = numbers.copy()
    rest = add_back(tensor.view(np.uint8), [hole], "float32")
    there = np.repeat(np.arange(125) % 2 == 0, 16)
    expected[100] = LARGEST["float32"]
    assert (tensor == np.where(there, expected, numbers)).all()
    assert [(one.start, len(one.values), one.waived) for one in rest] == [(384, 16, 0)]
    assert rest[0].values[4] == np.float32(1e38)


@given(st.sampled_from(FLOATS), st.integers(1, 700), st.integers(0, 6), st.data())
def test_cut_and_add_back_restore_every_byte(
    dtype: str, count: int, chunk: int, data: st.DataObject
) -> None:
    real = COMPLEX.get(dtype, dtype)
    size = count * STORAGE[dtype].itemsize
    start = min(chunk * 2 * SEGMENT, (size - 1) // (2 * SEGMENT) * 2 * SEGMENT)
    length = min(2 * SEGMENT, size - start)
    segments = sorted(data.draw(st.sets(st.integers(0, -(-length // SEGMENT) - 1), min_size=1)))
    numbers = np.random.default_rng(size).integers(-100, 100, size // STORAGE[real].itemsize)
    tensor: Bytes = stored(numbers, real).view(np.uint8)
    hole = cut(tensor[start : start + length], start, np.array(segments), SEGMENT, dtype)
    delivered = tensor.copy()
    for segment in segments:
        low = start + segment * SEGMENT
        delivered[low : min(low + SEGMENT, start + length)] = 0
    assert add_back(delivered, [hole], dtype) == []
    assert (delivered == tensor).all()


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize(("kept", "present"), [(1024.0, 512.0), (512.0, 1024.0), (3.0, 3.0)])
def test_what_comes_back_has_the_present_loss_scale(
    dtype: str, kept: float, present: float
) -> None:
    now = stored(np.full(64, present), dtype)
    hole = whole(np.full(64, 0.5 * kept), dtype, kept)
    assert add_back(now.view(np.uint8), [hole], dtype, scale=present) == []
    assert set(widen(now, dtype).tolist()) == {1.5 * present}


def test_both_parts_of_a_complex_number_come_back() -> None:
    now, then = np.full(8, 1 + 2j, np.complex64), np.full(8, 2 - 4j, np.complex64)
    hole = cut(then.view(np.uint8), 0, np.arange(1), SEGMENT, "complex64", scale=2.0)
    add_back(now.view(np.uint8), [hole], "complex64", scale=1.0)
    assert set(now.tolist()) == {2 + 0j}


@pytest.mark.parametrize("dtype", REAL)
def test_a_long_residual_is_added_in_blocks(dtype: str) -> None:
    count = 2 * BLOCK + 77
    tensor = stored(np.ones(count), dtype)
    values = np.zeros(count)
    values[[0, BLOCK - 1, BLOCK, count - 1]] = LARGEST[dtype]
    rest = add_back(tensor.view(np.uint8), [whole(values, dtype)], dtype)
    expected = np.ones(count)
    expected[values != 0] = LARGEST[dtype]
    assert (widen(tensor, dtype) == expected.astype(wide(dtype))).all()
    assert all(len(hole.values) <= BLOCK for hole in rest)
