"""Dropout that does not depend on the mesh: a mask is a hash of the places of its elements.

The hash has the number of the call, the seed of the step, and the index of an element along each
dimension of the whole tensor. So a rank computes its shard of the mask alone.
"""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

LARGEST: Final = 1 << 31


@torch.library.custom_op("dlcp_spmd::keep", mutates_args=())
def keep(shape: Sequence[int], p: float, number: int) -> Tensor:
    """The mask of a whole tensor: each element is true with probability 1 - p. `number`: of the
    call. In a divided graph it becomes a call of `ranks`."""
    return mask([torch.arange(size) for size in shape], p, number, seed=0)


@keep.register_fake
def _(shape: Sequence[int], p: float, number: int) -> Tensor:
    return torch.empty(shape, dtype=torch.bool)


KEEP: Final = torch.ops.dlcp_spmd.keep.default


def mask(places: Sequence[Tensor], p: float, number: int, *, seed: int) -> Tensor:
    """The mask of a shard. `places`: per dimension, the indices of its elements in the whole."""
    found = _mixed(torch.tensor([number * 0x9E3779B1 + seed], dtype=torch.int64)).squeeze()
    for at in places:
        found = _mixed(found.unsqueeze(-1) + at.to(torch.int64) * 0x85EBCA77)
    return found >= int(p * LARGEST)


def _mixed(x: Tensor) -> Tensor:
    """31 bits of which each depends on the lowest 32 of `x`: the hash "lowbias32" of Chris
    Wellons, in arithmetic of 64 bits."""
    x = x & 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    x = x ^ (x >> 16)
    return x >> 1
