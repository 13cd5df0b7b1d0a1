"""The reduction: bit for bit the plain loop over ranks, for every type and operator."""

import math
from typing import Any

import numpy as np
import pytest

from dlcpd.numerics.elements import INTEGERS, NARROW, STORAGE, narrow, widen
from dlcpd.numerics.reduce import reduce_in_order

WORLDS = (2, 3, 7)
SPECIAL = (0.0, -0.0, 1.0, -1.5, 3e38, -3e38, 65504.0, 6e-8, 1e-40, math.inf, -math.inf, math.nan)
DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64")
OPS = ("sum", "avg", "min", "max")
CASES = [(d, op) for d in DTYPES for op in OPS if (op != "avg" or d not in INTEGERS)]


def reduce_in_rank_order(parts: list[Any], rank: int, dtype: str, op: str) -> None:
    """Into the part of `rank`, as the rank that owns a chunk does it."""
    reduce_in_order(parts[rank], parts, dtype, op, divide_by=len(parts) if op == "avg" else 1)


EACH = pytest.mark.parametrize(("dtype", "op"), CASES)


def compute_type(dtype: str) -> Any:
    return np.dtype(np.float32) if dtype in NARROW else STORAGE[dtype]


def one_element(values: list[Any], dtype: str, op: str) -> Any:
    """The plain loop: scalars of the type that is computed in, in rank order."""
    kind = compute_type(dtype).type
    total = kind(values[0])
    for value in map(kind, values[1:]):
        if op in ("sum", "avg"):
            total = kind(total + value)
        elif math.isnan(total) or math.isnan(value):
            total = kind(math.nan)
        elif (value < total) if op == "min" else (value > total):
            total = value
    if op != "avg":
        return total
    count, numbers = len(values), [kind(value) for value in values]
    if math.isfinite(total) or not all(map(math.isfinite, numbers)):
        return kind(total / kind(count))
    down, again = kind(0.5 ** count.bit_length()), kind(0)
    for value in numbers:  # the average of smaller ones fits
        again = kind(again + value * down)
    largest = np.finfo(kind).max
    return kind(min(max(again / kind(count * down), -largest), largest))


def reference(parts: list[np.ndarray], dtype: str, op: str) -> np.ndarray:
    wide = [widen(part, dtype) for part in parts]
    with np.errstate(all="ignore"):
        out = [one_element([w[i] for w in wide], dtype, op) for i in range(len(wide[0]))]
        return narrow(np.array(out, compute_type(dtype)), dtype)


def draw(dtype: str, world: int, count: int, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    if dtype in INTEGERS:
        info = np.iinfo(STORAGE[dtype])
        return [
            rng.integers(info.min, info.max, count, STORAGE[dtype], endpoint=True)
            for _ in range(world)
        ]
    kind = compute_type(dtype)
    with np.errstate(over="ignore"):
        parts = [rng.normal(size=count).astype(kind) for _ in range(world)]
        special = np.array(SPECIAL).astype(kind)
    for part in parts:  # every pair of special values meets somewhere
        part[: count // 2] = special[rng.integers(0, len(special), count // 2)]
    return [narrow(part, dtype) for part in parts]


def same(a: np.ndarray, b: np.ndarray, dtype: str) -> bool:
    """Bitwise equal; of NaNs only that they are NaN, IEEE 754 leaves their payload open.

    Of zeros, min and max leave the sign open too.
    """
    bits = f"<u{a.dtype.itemsize}"
    wide_a, wide_b = widen(a, dtype), widen(b, dtype)
    nan = np.isnan(wide_a) & np.isnan(wide_b)
    return bool(((a.view(bits) == b.view(bits)) | nan).all())


@EACH
@pytest.mark.parametrize("world", WORLDS)
def test_equals_the_plain_loop_on_every_rank(dtype: str, op: str, world: int) -> None:
    parts = draw(dtype, world, 300, seed=world)
    if op in ("min", "max") and dtype not in INTEGERS:
        for part in parts:  # min(0.0, -0.0) may be either
            part[widen(part, dtype) == 0] = narrow(np.ones(1, compute_type(dtype)), dtype)[0]
    expected = reference(parts, dtype, op)
    for rank in range(world):
        copies = [part.copy() for part in parts]
        reduce_in_rank_order([c.view(np.uint8) for c in copies], rank, dtype, op)
        assert same(copies[rank], expected, dtype)


@EACH
def test_every_rank_computes_the_same_bits(dtype: str, op: str) -> None:
    """Whoever owns the chunk: NaN payloads and signs of zero included."""
    parts, results = draw(dtype, 4, 2000, seed=9), []
    for rank in range(4):
        copies = [part.copy() for part in parts]
        reduce_in_rank_order([c.view(np.uint8) for c in copies], rank, dtype, op)
        results.append(copies[rank].tobytes())
    assert len(set(results)) == 1


def test_the_order_is_that_of_ranks() -> None:
    big, small = np.float32(2**24), np.float32(1)
    for values, expected in (((small, small, big), 2**24 + 2), ((big, small, small), 2**24)):
        parts = [np.array([v], np.float32) for v in values]
        reduce_in_rank_order([p.view(np.uint8) for p in parts], 1, "float32", "sum")
        assert parts[1][0] == expected


@pytest.mark.parametrize("dtype", sorted(NARROW))
def test_16_bit_floats_are_added_in_32_and_rounded_once(dtype: str) -> None:
    """Added in 16 bits, the small terms would vanish one by one."""
    ulp = 2.0**-10 if dtype == "float16" else 2.0**-7
    numbers = [1.0] + [ulp / 4] * 6
    parts = [narrow(np.array([n], np.float32), dtype) for n in numbers]
    reduce_in_rank_order([p.view(np.uint8) for p in parts], 3, dtype, "sum")
    assert widen(parts[3], dtype)[0] == 1.0 + 2 * ulp  # 1.5 ulp is a tie, which goes to even


@pytest.mark.parametrize("dtype", sorted(NARROW))
def test_an_average_does_not_overflow_when_its_sum_would(dtype: str) -> None:
    top = 65504.0 if dtype == "float16" else 2.0**126
    parts = [narrow(np.array([top], np.float32), dtype) for _ in range(3)]
    reduce_in_rank_order([p.view(np.uint8) for p in parts], 0, dtype, "avg")
    assert widen(parts[0], dtype)[0] == top


def test_integers_wrap() -> None:
    parts = [np.array([2**31 - 1], np.int32), np.array([1], np.int32)]
    reduce_in_rank_order([p.view(np.uint8) for p in parts], 1, "int32", "sum")
    assert parts[1][0] == -(2**31)
