"""Dropout that is equal on all ranks: what it drops depends on a seed and the element's place."""

from typing import Final
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from dlcp_client.fused.language.operations import kept
from dlcp_client.group import Group

BLOCK: Final = 1 << 14  # elements: the hash's temporary values then stay in a core's cache
_STEP: Final = 0x9E3779B9  # between the seeds of successive calls

_bases: Final[WeakKeyDictionary[Group[Tensor], list[int]]] = WeakKeyDictionary()


class Dropout:
    """Of a matrix with `columns` columns, of which this rank may have some rows. The numbers are
    those of `dropout` of the language with the same seed."""

    def __init__(self, p: float, seed: int, columns: int) -> None:
        self._p, self.columns = p, columns
        self._seed = torch.tensor(seed)
        self._scale = 1 / (1 - p)

    def kept(self, first: int, rows: int) -> Tensor:
        """Whether the elements of these rows stay: bool, [rows, columns]."""
        start, count = first * self.columns, rows * self.columns
        out = torch.empty(count, dtype=torch.bool)
        for at in range(0, count, BLOCK):
            end = min(at + BLOCK, count)
            out[at:end] = kept(torch.arange(start + at, start + end), self._p, self._seed)
        return out.view(rows, self.columns)

    def apply(self, x: Tensor, kept: Tensor) -> Tensor:
        """0, or x / (1 - p); also of gradients."""
        return torch.where(kept, x * self._scale, 0)


def next_seed(group: Group[Tensor] | None) -> int:
    """A new seed, equal on all ranks of the group, which call this in the same order. The first one
    comes from `torch.initial_seed()` of the group's first rank.

    Raises: the error that ended the operation.
    """
    if group is None:
        return int(torch.randint(1 << 31, ()))
    state = _bases.get(group)
    if state is None:
        first = torch.tensor([torch.initial_seed() & 0x7FFFFFFF])
        group.broadcast(first, 0).wait()
        state = _bases[group] = [int(first)]
    state[0] = (state[0] + _STEP) & 0x7FFFFFFF
    return state[0]
