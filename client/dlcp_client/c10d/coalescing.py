"""Which tensors of a list share one operation, and how they lie in it.

An operation costs a message to the engine, two wake-ups and a round trip, whatever its size; a
small tensor costs less to copy than that. So the small ones of a list go together, by dtype.
"""

from collections.abc import Callable, Sequence
from typing import Final

import torch

from .staging import BYTES

SMALL: Final = 256 << 10  # bytes of a tensor, over all ranks; a larger one is not worth a copy
TOGETHER: Final = 4 << 20  # bytes of an operation of small ones


def shared(wholes: Sequence[torch.Tensor]) -> list[list[int]]:
    """Positions in a list that make one operation each. `wholes` are of the same sizes and dtypes
    on all ranks, so that all of them come to the same."""
    operations: list[list[int]] = []
    filling: dict[torch.dtype, list[int]] = {}
    filled: dict[torch.dtype, int] = {}
    for position, whole in enumerate(wholes):
        size, dtype = whole.nbytes, whole.dtype
        if size > SMALL:
            operations.append([position])
            continue
        if dtype not in filling or filled[dtype] + size > TOGETHER:
            filling[dtype], filled[dtype] = [], 0
            operations.append(filling[dtype])
        filling[dtype].append(position)
        filled[dtype] += size
    return operations


def by_rank(wholes: Sequence[torch.Tensor], ranks: int) -> list[torch.Tensor]:
    """Every rank's part of all tensors, those of the first rank first: flat views or copies."""
    rows = [(whole.reshape(-1), whole.numel() // ranks) for whole in wholes]
    return [row[rank * size : (rank + 1) * size] for rank in range(ranks) for row, size in rows]


def room_by_rank(
    wholes: Sequence[torch.Tensor], ranks: int
) -> tuple[torch.Tensor, Callable[[], None]]:
    """Bytes for every rank's part of all tensors, in that order, and what copies them there."""
    sizes = [whole.nbytes // ranks for whole in wholes]
    rows = torch.empty(ranks, sum(sizes), dtype=BYTES, device=wholes[0].device)

    def copy_back() -> None:
        with torch.no_grad():
            for part, whole in zip(torch.split(rows, sizes, dim=1), wholes, strict=True):
                values = part.contiguous().view(-1).view(whole.dtype)
                whole.detach().copy_(values.view(whole.shape))

    return rows.view(-1), copy_back
