"""What an all-reduce must give: the parts of all ranks, added one by one in the order of ranks."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlcpd.numerics.elements import INTEGERS, NARROW, STORAGE, narrow, widen

Tensor = NDArray[Any]
COMBINE = {"sum": np.add, "avg": np.add, "min": np.minimum, "max": np.maximum}


def draw(dtype: str, world_size: int, count: int, seed: int) -> list[Tensor]:
    """One tensor per rank, as it is stored."""
    rng = np.random.default_rng(seed)
    if dtype in INTEGERS:
        return [rng.integers(-1000, 1000, count).astype(STORAGE[dtype]) for _ in range(world_size)]
    wide = np.float32 if dtype in NARROW else STORAGE[dtype]
    return [narrow(rng.normal(size=count).astype(wide), dtype) for _ in range(world_size)]


def draw_whole(world_size: int, count: int, seed: int) -> list[Tensor]:
    """Whole numbers as float32, so small that all their sums are exact."""
    rng = np.random.default_rng(seed)
    return [rng.integers(1, 100, count).astype(np.float32) for _ in range(world_size)]


def rank_ordered(parts: list[Tensor], dtype: str, op: str) -> Tensor:
    """The reference; 16-bit floats are added in float32 and rounded once."""
    total = widen(parts[0], dtype).copy()
    for part in parts[1:]:
        total = COMBINE[op](total, widen(part, dtype))
    return narrow(total / len(parts) if op == "avg" else total, dtype)


def copies(parts: list[Tensor]) -> list[Tensor]:
    """Memory to reduce in, one per rank."""
    return [part.copy() for part in parts]
