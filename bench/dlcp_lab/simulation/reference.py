"""What an all-reduce must give: the parts of all ranks, added one by one in the order of ranks."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlcpd.numerics.elements import COMPLEX, INTEGERS, NARROW, STORAGE, narrow, widen

Tensor = NDArray[Any]


def product(a: Tensor, b: Tensor) -> Tensor:
    """Of complex numbers part by part, each rounded by itself."""
    if not np.iscomplexobj(a):
        return np.multiply(a, b)
    out = np.empty_like(a)
    out.real, out.imag = a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real
    return out


COMBINE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": np.add, "avg": np.add, "product": product, "min": np.minimum, "max": np.maximum,
    "band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor,
}  # fmt: skip


def draw(dtype: str, world_size: int, count: int, seed: int) -> list[Tensor]:
    """One tensor per rank, as it is stored."""
    rng = np.random.default_rng(seed)
    if dtype in INTEGERS:
        return [rng.integers(-1000, 1000, count).astype(STORAGE[dtype]) for _ in range(world_size)]
    if dtype == "bool":
        return [rng.integers(0, 2, count).astype(bool) for _ in range(world_size)]
    if dtype in COMPLEX:
        pairs = [rng.normal(size=2 * count).astype(COMPLEX[dtype]) for _ in range(world_size)]
        return [pair.view(STORAGE[dtype]) for pair in pairs]
    wide = np.float32 if dtype in NARROW else STORAGE[dtype]
    return [narrow(rng.normal(size=count).astype(wide), dtype) for _ in range(world_size)]


def draw_whole(world_size: int, count: int, seed: int) -> list[Tensor]:
    """Whole numbers as float32, so small that all their sums are exact."""
    rng = np.random.default_rng(seed)
    return [rng.integers(1, 100, count).astype(np.float32) for _ in range(world_size)]


def rank_ordered(parts: list[Tensor], dtype: str, op: str) -> Tensor:
    """The reference; 16-bit floats are added in float32 and rounded once."""
    total = widen(parts[0], dtype).copy()
    with np.errstate(all="ignore"):
        for part in parts[1:]:
            total = COMBINE[op](total, widen(part, dtype))
    if op == "avg" and dtype in COMPLEX:  # part by part: numpy would divide by a complex number
        return (total.view(COMPLEX[dtype]) / len(parts)).view(STORAGE[dtype])
    return narrow(total / len(parts) if op == "avg" else total, dtype)


def copies(parts: list[Tensor]) -> list[Tensor]:
    """Memory to reduce in, one per rank."""
    return [part.copy() for part in parts]
