"""Groups small tensors of a list into shared operations, and lays them out.

An operation costs a message to the engine, two wake-ups and a round trip, whatever its size.
Copying a small tensor costs less, so small tensors of one dtype share an operation.
"""

from collections.abc import Callable, Sequence
from typing import Final

import torch

from .staging import BYTES

SMALL: Final = 256 << 10  # bytes of a tensor, over all ranks; a larger one is not worth a copy
TOGETHER: Final = 4 << 20  # bytes of an operation on small tensors


def shared(wholes: Sequence[torch.Tensor]) -> list[list[int]]:
    """Positions in `wholes` by operation. Sizes and dtypes of `wholes` are equal on all ranks, so
    all ranks get the same result."""
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
    """The part of each rank of all tensors, in rank order: flat views or copies."""
    rows = [(whole.reshape(-1), whole.numel() // ranks) for whole in wholes]
    return [row[rank * size : (rank + 1) * size] for rank in range(ranks) for row, size in rows]


def room_by_rank(
    wholes: Sequence[torch.Tensor], ranks: int
) -> tuple[torch.Tensor, Callable[[], None]]:
    """A buffer for all ranks' parts, in that order, and a function that copies it to `wholes`."""
    sizes = [whole.nbytes // ranks for whole in wholes]
    rows = torch.empty(ranks, sum(sizes), dtype=BYTES, device=wholes[0].device)

    def copy_back() -> None:
        with torch.inference_mode():  # as Buffer.copy_back
            for part, whole in zip(torch.split(rows, sizes, dim=1), wholes, strict=True):
                values = part.contiguous().view(-1).view(whole.dtype)
                whole.detach().copy_(values.view(whole.shape))

    return rows.view(-1), copy_back
