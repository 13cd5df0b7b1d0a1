"""reduce_in_order: every type and operation, any target, and nothing written but the target."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.numerics.elements import (
    COMPLEX,
    INTEGERS,
    LARGEST,
    NARROW,
    STORAGE,
    narrow,
    wide,
    widen,
)
from dlcpd.numerics.reduce import BLOCK, OPERATIONS, reduce_in_order, supports
from tests.numerics.plain import canonical, draw, plain

CASES = [(dtype, op) for dtype in STORAGE for op in OPERATIONS if supports(dtype, op)]
EACH = pytest.mark.parametrize(("dtype", "op"), CASES)
LONG = 3 * BLOCK // 4 + 5  # elements: several blocks, the last one short
Raw = np.ndarray[tuple[int], np.dtype[np.uint8]]


def placed(part: np.ndarray, shift: int) -> Raw:
    """A copy of `part` as bytes that start `shift` bytes after an aligned address."""
    raw = np.zeros(part.nbytes + 64, np.uint8)
    at = (-raw.ctypes.data) % 64 + shift
    raw[at : at + part.nbytes] = part.view(np.uint8)
    return raw[at : at + part.nbytes]


@EACH
@pytest.mark.parametrize("alias", [None, 0, 1, 2, 3])
def test_any_target_and_nothing_else_is_written(dtype: str, op: str, alias: int | None) -> None:
    parts = [draw(dtype, LONG, seed) for seed in range(4)]
    divide_by = 4 if op == "avg" else 1
    for shift in (0, 1):
        operands = [placed(part, shift) for part in parts]
        target = placed(np.zeros_like(parts[0]), shift) if alias is None else operands[alias]
        reduce_in_order(target, operands, dtype, op, divide_by=divide_by)
        expected = plain(parts, dtype, op, divide_by)
        assert canonical(target.tobytes(), dtype) == canonical(expected, dtype)
        for at, part in enumerate(parts):
            assert at == alias or operands[at].tobytes() == part.tobytes()


@given(st.integers(0, 40), st.integers(1, 6), st.data())
def test_an_operand_may_occur_often(count: int, operands: int, data: st.DataObject) -> None:
    three = [draw("float32", count, seed) for seed in range(3)]
    which = data.draw(st.lists(st.integers(0, 2), min_size=operands, max_size=operands))
    memory = [placed(part, 0) for part in three]
    reduce_in_order(memory[0], [memory[at] for at in which], "float32", "sum")
    expected = plain([three[at] for at in which], "float32", "sum")
    assert memory[0].tobytes() == expected


@pytest.mark.parametrize("dtype", sorted(STORAGE))
def test_one_operand_is_copied_bit_by_bit(dtype: str) -> None:
    source = np.arange(256, dtype=np.uint8).repeat(16)  # every byte: NaN payloads, bools of 255
    for target in (np.zeros_like(source), source.copy()):
        reduce_in_order(target, [source], dtype, "sum")
        assert target.tobytes() == source.tobytes()
    in_place = source.copy()
    reduce_in_order(in_place, [in_place], dtype, "max")
    assert in_place.tobytes() == source.tobytes()


def test_a_copy_may_overlap_its_source() -> None:
    memory = np.arange(256, dtype=np.uint8)
    reduce_in_order(memory[64:], [memory[:-64]], "float32", "sum")
    assert memory.tolist() == [*range(64), *range(192)]


def test_one_operand_is_divided() -> None:
    target = np.zeros(2, np.float32)
    reduce_in_order(
        target.view(np.uint8),
        [np.array([3, 5], np.float32).view(np.uint8)],
        "float32",
        "avg",
        divide_by=2,
    )
    assert target.tolist() == [1.5, 2.5]


@pytest.mark.parametrize(
    ("op", "expected"),
    [("sum", [0, 1, 1, 1]), ("product", [0, 0, 0, 1]), ("min", [0, 0, 0, 1]),
     ("max", [0, 1, 1, 1]), ("band", [0, 0, 0, 1]), ("bor", [0, 1, 1, 1]), ("bxor", [0, 1, 1, 0])],
)  # fmt: skip
def test_bool_is_reduced_as_gloo_reduces_it(op: str, expected: list[int]) -> None:
    """The truth values of torch 2.13's Gloo; where its sum stores a 2, here stands a 1."""
    parts = [np.array([0, 0, 1, 1], np.uint8), np.array([0, 1, 0, 1], np.uint8)]
    reduce_in_order(parts[0], parts, "bool", op)
    assert parts[0].tolist() == expected


@pytest.mark.parametrize("dtype", sorted(INTEGERS))
def test_integers_wrap(dtype: str) -> None:
    info = np.iinfo(STORAGE[dtype])
    for op, expected in (("sum", info.min), ("product", (info.max * info.max) & 1)):
        other = 1 if op == "sum" else info.max
        parts = [np.array([n], STORAGE[dtype]).view(np.uint8) for n in (info.max, other)]
        reduce_in_order(parts[0], parts, dtype, op)
        assert parts[0].view(STORAGE[dtype])[0] == expected


@pytest.mark.parametrize("dtype", sorted(NARROW))
def test_temporary_memory_does_not_grow_with_the_size(dtype: str) -> None:
    parts = [np.zeros(32 * BLOCK, np.uint8) for _ in range(3)]
    tracemalloc.start()
    reduce_in_order(parts[2], parts, dtype, "sum")
    reduce_in_order(parts[2], parts, "float64", "sum")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * BLOCK


def test_what_cannot_be_reduced_is_refused() -> None:
    refused = {(d, op) for d in STORAGE for op in OPERATIONS if not supports(d, op)}
    floats = {"float64", "float32", "float16", "bfloat16"}
    exact = {(d, "avg") for d in (*INTEGERS, "bool")}
    bitwise = {(d, op) for d in floats | set(COMPLEX) for op in ("band", "bor", "bxor")}
    ordered = {(d, op) for d in COMPLEX for op in ("min", "max")}
    assert refused == exact | bitwise | ordered
    assert not supports("float8", "sum")
    assert not supports("float32", "premul")


@pytest.mark.parametrize("dtype", sorted(LARGEST))
@pytest.mark.parametrize("ranks", [2, 3, 5, 8, 100])
def test_an_average_of_finite_values_is_finite(dtype: str, ranks: int) -> None:
    """Its bits are those of a plain sum wherever that fits."""
    rng, top = np.random.default_rng(ranks), LARGEST[dtype]
    drawn = [rng.uniform(-1, 1, 500) * top for _ in range(ranks)]
    for part in drawn:
        part[:2], part[2:250] = (top, -top), part[2:250] / 1e3 / ranks
    parts = [narrow(part.astype(wide(dtype)), dtype) for part in drawn]
    target = np.zeros(parts[0].nbytes, np.uint8)
    reduce_in_order(target, [part.view(np.uint8) for part in parts], dtype, "avg", divide_by=ranks)
    found = widen(target.view(STORAGE[dtype]), dtype)
    means = np.sum([widen(part, dtype)[2:] / np.float64(ranks) for part in parts], axis=0)
    np.testing.assert_allclose(found[:2], [top, -top], rtol=4 * np.finfo(found.dtype).eps)
    np.testing.assert_allclose(found[2:], means, rtol=4e-3, atol=top * 1e-3 / ranks)
    with np.errstate(over="ignore"):
        total = widen(parts[0], dtype).copy()
        for part in parts[1:]:
            total += widen(part, dtype)
    assert (found[2:250] == widen(narrow(total / ranks, dtype), dtype)[2:250]).all()
