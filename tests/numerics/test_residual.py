"""Error feedback: what was cut out comes back, once, to the byte it came from."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.contract.messages import DTYPES
from dlcpd.numerics.elements import INTEGERS, NARROW, STORAGE, narrow, widen
from dlcpd.numerics.residual import MAX_NAMES, Hole, ResidualStore, add_back, cut

SEGMENT = 64
FLOATS = sorted(set(DTYPES) - INTEGERS - {"bool"})
KEY = ("layer", "float32", 100)


def kind_of(dtype: str) -> Any:
    """The type of `dtype` in which numpy computes."""
    return np.float32 if dtype in NARROW else STORAGE[dtype]


def hole_at(tensor: np.ndarray, start: int, size: int, segments: list[int]) -> Hole:
    chunk = tensor[start : start + size]
    return cut(chunk, start, np.array(segments, np.intp), SEGMENT)


@given(st.integers(1, 700), st.integers(0, 6), st.data())
def test_cut_and_add_back_restore_every_byte(size: int, chunk: int, data: st.DataObject) -> None:
    size *= 4
    start = min(chunk * 2 * SEGMENT, (size - 1) // (2 * SEGMENT) * 2 * SEGMENT)
    length = min(2 * SEGMENT, size - start)
    segments = data.draw(st.sets(st.integers(0, -(-length // SEGMENT) - 1), min_size=1))
    tensor = np.random.default_rng(size).integers(0, 1 << 20, size // 4).astype(np.int32)
    raw = tensor.view(np.uint8)
    hole = hole_at(raw, start, length, sorted(segments))
    delivered = tensor.copy()
    for low, _, count in hole.spans(size):
        delivered.view(np.uint8)[low : low + count] = 0
    assert add_back(delivered.view(np.uint8), [hole], "int32") == len(segments)
    assert (delivered == tensor).all()


def test_the_values_are_a_copy() -> None:
    tensor = np.ones(64, np.uint8)
    hole = hole_at(tensor, 0, 64, [0])
    tensor[:] = 0
    assert (hole.values == 1).all()


def test_a_short_tail_stays_short() -> None:
    tensor = np.arange(100, dtype=np.uint8)
    hole = hole_at(tensor, 0, 100, [0, 1])
    assert hole.spans(100) == [(0, 0, 64), (64, 64, 36)]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("kept", "present"), [(1024.0, 512.0), (512.0, 1024.0), (3.0, 3.0)])
def test_what_comes_back_has_the_present_loss_scale(
    dtype: str, kept: float, present: float
) -> None:
    kind = kind_of(dtype)
    then = narrow(np.full(64, 0.5 * kept, kind), dtype)
    now = narrow(np.full(64, 1.0 * present, kind), dtype)
    every = np.arange(now.nbytes // SEGMENT)
    hole = cut(then.view(np.uint8), 0, every, SEGMENT, scale=kept)
    add_back(now.view(np.uint8), [hole], dtype, scale=present)
    assert set(widen(now, dtype).tolist()) == {1.5 * present}


def test_both_parts_of_a_complex_number_come_back() -> None:
    now, then = np.full(8, 1 + 2j, np.complex64), np.full(8, 2 - 4j, np.complex64)
    hole = cut(then.view(np.uint8), 0, np.arange(1), SEGMENT, scale=2.0)
    add_back(now.view(np.uint8), [hole], "complex64", scale=1.0)
    assert set(now.tolist()) == {2 + 0j}


def test_what_leaves_the_range_in_the_present_scale_is_infinite() -> None:
    now, then = np.zeros(16, np.float32), np.full(16, 3e38, np.float32)
    hole = cut(then.view(np.uint8), 0, np.arange(1), SEGMENT, scale=0.5)
    add_back(now.view(np.uint8), [hole], "float32", scale=1.0)
    assert np.isinf(now).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_adding_back_is_an_addition_in_the_type_that_is_computed_in(dtype: str) -> None:
    kind = kind_of(dtype)
    now = narrow(np.array([1.0, -2.0, 0.5] + [0.0] * 61, kind), dtype)
    then = narrow(np.array([0.25, 1.0, 2.0] + [0.0] * 61, kind), dtype)
    hole = cut(then.view(np.uint8), 0, np.arange(now.nbytes // SEGMENT), SEGMENT)
    add_back(now.view(np.uint8), [hole], dtype)
    assert widen(now, dtype)[:3].tolist() == [1.25, -1.0, 2.5]


@pytest.mark.parametrize("dtype", FLOATS)
def test_an_overflow_is_an_infinity_and_no_warning(dtype: str) -> None:
    kind = kind_of(dtype)
    top = np.finfo(kind).max
    now = narrow(np.full(64, 65504.0 if dtype == "float16" else top, kind), dtype)
    hole = cut(now.view(np.uint8).copy(), 0, np.array([0]), SEGMENT)
    add_back(now.view(np.uint8), [hole], dtype)
    assert np.isinf(widen(now, dtype)[0])


def test_narrow_types_round_once() -> None:
    assert "bfloat16" in NARROW
    one = narrow(np.full(32, 1.0, np.float32), "bfloat16")
    tiny = narrow(np.full(32, 2.0**-8, np.float32), "bfloat16")
    hole = cut(tiny.view(np.uint8), 0, np.array([0]), SEGMENT)
    add_back(one.view(np.uint8), [hole], "bfloat16")
    assert widen(one, "bfloat16")[0] == 1.0  # the tie goes to even


def test_a_store_gives_back_what_was_put_and_only_once() -> None:
    store, tensor = ResidualStore(), np.ones(256, np.uint8)
    one, two = hole_at(tensor, 0, 128, [0]), hole_at(tensor, 128, 128, [1])
    store.put(KEY, [one])
    store.put(KEY, [two])
    store.put(("other", "float32", 100), [two])
    assert store.size == 3 * SEGMENT
    assert store.take(KEY) == [one, two]
    assert store.take(KEY) == []
    assert store.size == SEGMENT


@pytest.mark.parametrize("key", [("other", *KEY[1:]), (KEY[0], "float64", 100), (*KEY[:2], 99)])
def test_another_name_type_or_size_is_another_tensor(key: tuple[str, str, int]) -> None:
    store = ResidualStore()
    store.put(KEY, [hole_at(np.ones(64, np.uint8), 0, 64, [0])])
    assert store.take(key) == []


def test_nothing_to_keep_keeps_no_name() -> None:
    store = ResidualStore()
    store.put(KEY, [])
    assert store.take(KEY) == []
    assert store.size == 0


def test_the_store_is_bounded_and_counts_what_it_drops() -> None:
    store, hole = ResidualStore(), hole_at(np.ones(64, np.uint8), 0, 64, [0])
    for number in range(MAX_NAMES):
        store.put((str(number), "float32", 1), [hole])
    store.put(("0", "float32", 1), [hole])  # in use again
    assert store.evicted == 0
    store.put(("new", "float32", 1), [hole])
    assert store.evicted == 1
    assert store.take(("1", "float32", 1)) == []
    assert len(store.take(("0", "float32", 1))) == 2


def test_storage_covers_the_contract() -> None:
    assert set(STORAGE) >= set(DTYPES)


def test_one_store_takes_over_what_another_keeps() -> None:
    ours, theirs = ResidualStore(), ResidualStore()
    tensor = np.arange(128, dtype=np.uint8)
    one, two = ("a", "uint8", 128), ("b", "uint8", 128)
    ours.put(one, [hole_at(tensor, 0, 128, [0])])
    theirs.put(one, [hole_at(tensor, 0, 128, [1])])
    theirs.put(two, [hole_at(tensor, 0, 128, [0])])
    ours.take_over(theirs)
    assert (list(ours), len(theirs), theirs.size) == ([one, two], 0, 0)
    assert [hole.segments.tolist() for hole in ours.take(one)] == [[0], [1]]
