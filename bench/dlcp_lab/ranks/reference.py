"""Reference results of all-reduce in plain numpy, independent of the code under test.

Tensors are numpy arrays of stored elements; bfloat16, which numpy lacks, is stored as uint16.
Values are added in rank order; 16-bit floats are added in float32 and rounded once, to nearest
even.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Stored = NDArray[Any]
OPERATIONS: Final = ("sum", "avg", "min", "max")
DTYPES: Final[dict[str, Any]] = {
    "float32": np.float32,
    "float64": np.float64,
    "float16": np.float16,
    "bfloat16": np.uint16,
    "int32": np.int32,
    "int64": np.int64,
}
# Relative error that another order of addition may cause, per rank: one unit in the last place.
_EPSILON: Final = {"float32": 2**-23, "float64": 2**-52, "float16": 2**-10, "bfloat16": 2**-7}


def contribution(dtype: str, count: int, *, seed: int, rank: int) -> Stored:
    """The contribution of `rank`: normal numbers, or integers within +-1000."""
    rng = np.random.default_rng([seed, rank, count])
    if dtype in ("int32", "int64"):
        whole: Stored = rng.integers(-1000, 1001, count, DTYPES[dtype])
        return whole
    if dtype == "float64":
        return rng.standard_normal(count)
    return from_float32(rng.standard_normal(count, np.float32), dtype)


def to_float32(stored: Stored) -> NDArray[np.float32]:
    """bfloat16 or float16 elements as float32: exact."""
    if stored.dtype == np.uint16:  # a bfloat16 is the upper half of a float32
        return np.left_shift(stored, 16, dtype=np.uint32).view(np.float32)
    return stored.astype(np.float32)


def from_float32(numbers: NDArray[np.float32], dtype: str) -> Stored:
    """Elements of `dtype` nearest to finite `numbers`; ties go to the even one."""
    if dtype != "bfloat16":
        same: Stored = numbers.astype(DTYPES[dtype])
        return same
    bits = numbers.view(np.uint32).astype(np.uint64)
    lower, upper = bits & 0xFFFF, bits >> 16
    up = (lower > 0x8000) | ((lower == 0x8000) & (upper & 1 == 1))
    rounded: Stored = (upper + up).astype(np.uint16)
    return rounded


def all_reduce(parts: Sequence[Stored], dtype: str, op: str) -> Stored:
    """Reduce one part per rank, in rank order: "sum", "avg", "min" or "max"."""
    narrow = dtype in ("float16", "bfloat16")
    total = to_float32(parts[0]) if narrow else parts[0].copy()
    for part in parts[1:]:
        term = to_float32(part) if narrow else part
        if op in ("sum", "avg"):
            total = total + term
        else:
            total = np.minimum(total, term) if op == "min" else np.maximum(total, term)
    if op == "avg":
        total = total / total.dtype.type(len(parts))
    return from_float32(total, dtype) if narrow else total


def differing(one: Stored, other: Stored) -> NDArray[np.bool_]:
    """Per element: whether any bit differs. Bits, so that -0 is not 0 and NaN equals itself."""
    kind = np.dtype(f"u{one.dtype.itemsize}")
    different: NDArray[np.bool_] = one.view(kind) != other.view(kind)
    return different


def far(one: Stored, other: Stored, dtype: str, ranks: int) -> NDArray[np.bool_]:
    """Per element: whether they differ by more than another order of addition explains."""
    if dtype not in _EPSILON:
        return differing(one, other)
    a, b = (to_float32(x) if dtype in ("float16", "bfloat16") else x for x in (one, other))
    # Sums of normal numbers may cancel, so the error is that of terms of size ~4 each.
    allowed = _EPSILON[dtype] * ranks * np.maximum(np.abs(b), 4)
    return ~(np.abs(a - b) <= allowed)
