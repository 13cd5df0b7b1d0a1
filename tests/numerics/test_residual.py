"""What was waived is kept until it is taken, once."""

import numpy as np
import pytest

from dlcpd.contract.messages import DTYPES
from dlcpd.numerics.elements import COMPLEX, INTEGERS, STORAGE, narrow, wide
from dlcpd.numerics.residual import MAX_NAMES, Hole, ResidualStore, cut

SEGMENT = 64
KEY = ("layer", "float32", 100)


def hole_at(tensor: np.ndarray, start: int, size: int, segments: list[int]) -> Hole:
    chunk = tensor.view(np.uint8)[start : start + size]
    return cut(chunk, start, np.array(segments, np.intp), SEGMENT, "float32")


@pytest.mark.parametrize("dtype", sorted(set(DTYPES) - INTEGERS - {"bool"}))
def test_values_are_cut_out_in_a_type_that_loses_nothing(dtype: str) -> None:
    real = COMPLEX.get(dtype, dtype)
    numbers = np.random.default_rng(1).normal(size=100).astype(wide(dtype))
    stored = narrow(numbers, real)
    hole = cut(stored.view(np.uint8), 0, np.array([0, 2]), SEGMENT, dtype, scale=4.0, source=3)
    per = SEGMENT // stored.itemsize
    assert hole.values.dtype == wide(dtype)
    expected = np.concatenate([stored[:per], stored[2 * per : 3 * per]])
    assert (narrow(hole.values, real) == expected).all()
    assert (hole.scale, hole.source, hole.waived, hole.coded) == (4.0, 3, 2, False)


def test_the_values_are_a_copy() -> None:
    tensor = np.ones(16, np.float32)
    hole = hole_at(tensor, 0, 64, [0])
    tensor[:] = 0
    assert (hole.values == 1).all()


def test_a_short_tail_stays_short() -> None:
    hole = hole_at(np.arange(25, dtype=np.float32), 0, 100, [0, 1])
    assert hole.values.tolist() == list(range(25))


def test_a_store_gives_back_what_was_put_and_only_once() -> None:
    store, tensor = ResidualStore(), np.ones(64, np.float32)
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
    store.put(KEY, [hole_at(np.ones(16, np.float32), 0, 64, [0])])
    assert store.take(key) == []


def test_nothing_to_keep_keeps_no_name() -> None:
    store = ResidualStore()
    store.put(KEY, [])
    assert store.take(KEY) == []
    assert store.size == 0


def test_the_store_is_bounded_and_counts_what_it_drops() -> None:
    store, hole = ResidualStore(), hole_at(np.ones(16, np.float32), 0, 64, [0])
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
    tensor = np.arange(32, dtype=np.float32)
    one, two = ("a", "float32", 32), ("b", "float32", 32)
    ours.put(one, [hole_at(tensor, 0, 128, [0])])
    theirs.put(one, [hole_at(tensor, 0, 128, [1])])
    theirs.put(two, [hole_at(tensor, 0, 128, [0])])
    ours.take_over(theirs)
    assert (list(ours), len(theirs), theirs.size) == ([one, two], 0, 0)
    assert [hole.segments.tolist() for hole in ours.take(one)] == [[0], [1]]
