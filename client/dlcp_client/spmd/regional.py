"""Collectives of manual regions in terms of those of a divided graph (`collectives`)."""

from collections.abc import Sequence
from math import prod
from typing import Any

from torch import Tensor

from .windows import Window


def meaning_of(kind: str, dims: Sequence[int], x: Tensor, parts: int) -> tuple[str, list[Any]]:
    """The method of `Ranks`, and its options after the axis. `x`: this rank's tensor."""
    if kind in ("all_gather", "all_to_all"):
        return kind, [*dims, x.shape[dims[0]] * parts]
    if kind == "shift":
        rows = x.shape[0]
        start = -dims[0] * rows % (rows * parts)
        window = Window(rows * parts, 1, start, 1, rows * parts, wrap=True)
        return "halo_exchange", [0, tuple(window), 0.0]
    return kind, list(dims)


def bytes_sent(kind: str, dims: Sequence[int], x: Tensor, parts: int) -> float:
    """Bytes that a rank sends."""
    local = prod(x.shape) * x.element_size()
    if kind == "shift":
        return float(local if dims[0] % parts else 0)
    times = {"all_reduce": 2 / parts, "all_gather": 1.0}.get(kind, 1 / parts)
    return local * (parts - 1) * times
