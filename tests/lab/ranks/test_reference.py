"""The reference against torch, which shares no code with it, and by hand."""

import numpy as np
import pytest
import torch

from dlcp_lab.ranks import reference
from dlcp_lab.ranks.reference import DTYPES
from dlcp_lab.ranks.tensors import TORCH, as_stored, as_tensor

SEED = 5
OPERATIONS = ("sum", "avg", "min", "max")


def parts(dtype: str, count: int = 1000, ranks: int = 5) -> list[reference.Stored]:
    return [reference.contribution(dtype, count, seed=SEED, rank=rank) for rank in range(ranks)]


def torch_all_reduce(stored: list[reference.Stored], dtype: str, op: str) -> torch.Tensor:
    """One element type and one operation at a time, as torch does them."""
    narrow = dtype in ("float16", "bfloat16")
    tensors = [as_tensor(part, dtype) for part in stored]
    total, *rest = [t.float() for t in tensors] if narrow else tensors
    for tensor in rest:
        if op in ("sum", "avg"):
            total = total + tensor
        else:
            total = torch.minimum(total, tensor) if op == "min" else torch.maximum(total, tensor)
    if op == "avg":
        total = total / len(stored)
    return total.to(TORCH[dtype])


@pytest.mark.parametrize(
    ("dtype", "op"),
    [(d, op) for d in DTYPES for op in OPERATIONS if op != "avg" or not d.startswith("int")],
)
def test_equals_torch_bit_for_bit(dtype: str, op: str) -> None:
    stored = parts(dtype)
    expected = as_stored(torch_all_reduce(stored, dtype, op))
    got = reference.all_reduce(stored, dtype, op)
    assert got.dtype == expected.dtype
    assert not reference.differing(got, expected).any()


def test_order_of_ranks_is_the_order_of_addition() -> None:
    large, small = np.array([2.0**24], np.float32), np.array([1.0], np.float32)
    assert reference.all_reduce([large, small, small], "float32", "sum")[0] == 2.0**24
    assert reference.all_reduce([small, small, large], "float32", "sum")[0] == 2.0**24 + 2


def test_narrow_types_are_rounded_once() -> None:
    one, little = (
        np.array([2048], np.float16),
        np.array([0.75], np.float16),
    )  # float16 has steps of 2 there
    assert reference.all_reduce([one, little, little], "float16", "sum")[0] == 2050


def test_the_inputs_are_left_alone() -> None:
    stored = parts("float32", ranks=2)
    before = [part.copy() for part in stored]
    reference.all_reduce(stored, "float32", "sum")
    assert all((a == b).all() for a, b in zip(stored, before, strict=True))


def test_bfloat16_rounds_every_upper_half_as_torch_does() -> None:
    """All upper halves that are finite, with lower halves below, at and above the middle."""
    upper = np.arange(1 << 16, dtype=np.uint32)
    upper = upper[(upper & 0x7F80) != 0x7F80]
    for lower in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF):
        numbers = (upper << 16 | lower).view(np.float32)
        got = reference.from_float32(numbers, "bfloat16")
        expected = as_stored(torch.from_numpy(numbers.copy()).to(torch.bfloat16))
        assert (got == expected).all(), hex(lower)


@pytest.mark.parametrize("dtype", DTYPES)
def test_contributions_differ_by_rank_and_seed_and_repeat(dtype: str) -> None:
    one = reference.contribution(dtype, 100, seed=1, rank=0)
    again = reference.contribution(dtype, 100, seed=1, rank=0)
    assert not reference.differing(one, again).any()
    for seed, rank in ((1, 1), (2, 0)):
        other = reference.contribution(dtype, 100, seed=seed, rank=rank)
        assert reference.differing(one, other).mean() > 0.5


def test_differing_looks_at_bits() -> None:
    nan = np.array([np.nan, 0.0, 1.0], np.float32)
    assert reference.differing(nan, np.array([np.nan, -0.0, 1.0], np.float32)).tolist() == [
        False,
        True,
        False,
    ]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_far_allows_another_order_and_nothing_more(dtype: str) -> None:
    stored = parts(dtype, ranks=4)
    one = reference.all_reduce(stored, dtype, "sum")
    other = reference.all_reduce(stored[::-1], dtype, "sum")
    assert not reference.far(one, other, dtype, 4).any()
    missing = reference.all_reduce(stored[:3], dtype, "sum")
    assert reference.far(missing, one, dtype, 4).mean() > 0.9


def test_nan_is_far_from_everything() -> None:
    assert reference.far(
        np.array([np.nan], np.float32), np.array([1.0], np.float32), "float32", 2
    ).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_share_memory_with_stored_elements(dtype: str) -> None:
    stored = reference.contribution(dtype, 10, seed=1, rank=0)
    tensor = as_tensor(stored, dtype)
    assert tensor.dtype == TORCH[dtype]
    tensor.zero_()
    assert not stored.any()
    assert as_stored(tensor).dtype == stored.dtype
