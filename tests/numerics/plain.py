"""Random elements of every type, and the plain way to reduce them."""

from collections.abc import Callable, Sequence
from functools import reduce as fold

import numpy as np

from dlcp_lab.simulation.reference import product
from dlcpd.numerics.elements import COMPLEX, INTEGERS, LARGEST, STORAGE, narrow, widen

OPERATIONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "sum": np.add, "avg": np.add, "product": product, "min": np.minimum, "max": np.maximum,
    "band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor,
}  # fmt: skip


def draw(dtype: str, count: int, seed: int) -> np.ndarray:
    """Stored elements; of floats some are NaN, infinite or zero."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, count).astype(bool)
    if dtype in INTEGERS:
        info = np.iinfo(STORAGE[dtype])
        return rng.integers(info.min, info.max, count, STORAGE[dtype], endpoint=True)
    if dtype in COMPLEX:
        return draw(COMPLEX[dtype], 2 * count, seed).view(STORAGE[dtype])
    numbers = rng.normal(size=count).astype(np.float64 if dtype == "float64" else np.float32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 3e38, 1e-40], numbers.dtype)
    numbers[: count // 4] = special[rng.integers(0, len(special), count // 4)]
    return narrow(numbers, dtype)


def draw_exact(dtype: str, count: int, seed: int) -> np.ndarray:
    """Stored elements whose sums and products over nine ranks are exact in any order."""
    positive = dtype == "uint8" or dtype in COMPLEX  # whose zeros have signs by the order, too
    small = np.random.default_rng(seed).choice([1, 2] if positive else [-1, 1, 2], count)
    if dtype == "bool":
        ones: np.ndarray = small == 1
        return ones
    if dtype in ("float16", "bfloat16"):
        return narrow(small.astype(np.float32), dtype)
    return small.astype(STORAGE[dtype])


def plain(parts: Sequence[np.ndarray], dtype: str, op: str, divide_by: int = 1) -> bytes:
    """All of every operand at once, in order, with new memory for every result."""
    if divide_by != 1 and dtype in COMPLEX:
        return plain([part.view(COMPLEX[dtype]) for part in parts], COMPLEX[dtype], op, divide_by)
    with np.errstate(all="ignore"):
        numbers = [widen(part, dtype) for part in parts]
        total = fold(OPERATIONS[op], numbers)
        if divide_by != 1:
            total = total / divide_by
            down = 0.5 ** len(parts).bit_length()  # an average that fits is no infinity
            again = fold(np.add, [part * down for part in numbers]) / (divide_by * down)
            largest = LARGEST[total.dtype.name]
            fits = np.all([np.isfinite(part) for part in numbers], axis=0)
            np.copyto(total, again.clip(-largest, largest), where=fits & ~np.isfinite(total))
        return narrow(total, dtype).tobytes()


def canonical(raw: bytes, dtype: str) -> bytes:
    """The same with one NaN for all: which of two NaNs a sum keeps, IEEE 754 leaves open."""
    stored = np.frombuffer(raw, STORAGE[COMPLEX.get(dtype, dtype)]).copy()
    wide = widen(stored, COMPLEX.get(dtype, dtype))
    if wide.dtype.kind == "f":
        stored[np.isnan(wide)] = narrow(np.array([np.nan], wide.dtype), dtype)[0]
    return stored.tobytes()
