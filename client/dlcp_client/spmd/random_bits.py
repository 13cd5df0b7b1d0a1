"""Random bits that do not depend on the mesh: a hash of the places of elements.

The hash has the number of the call, the seed of the step, and the index of an element along each
dimension of the whole tensor. So a rank computes its shard alone.
"""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

DIGITS: Final = 31


@torch.library.custom_op("dlcp_spmd::bits", mutates_args=())
def bits(shape: Sequence[int], number: int) -> Tensor:
    """Random numbers 0..2^31-1 for a whole tensor. `number`: of the call. In a divided graph it
    becomes a call of `ranks`."""
    return hashed([torch.arange(size) for size in shape], number, seed=0)


@bits.register_fake
def _(shape: Sequence[int], number: int) -> Tensor:
    return torch.empty(shape, dtype=torch.int64)


BITS: Final = torch.ops.dlcp_spmd.bits.default


def hashed(places: Sequence[Tensor], number: int, *, seed: int) -> Tensor:
    """The bits of a shard. `places`: per dimension, the indices of its elements in the whole."""
    found = _mixed(torch.tensor([number * 0x9E3779B1 + seed], dtype=torch.int64)).squeeze()
    for at in places:
        found = _mixed(found.unsqueeze(-1) + at.to(torch.int64) * 0x85EBCA77)
    return found


def _mixed(x: Tensor) -> Tensor:
    """31 bits of which each depends on the lowest 32 of `x`: the hash "lowbias32" of Chris
    Wellons, in arithmetic of 64 bits."""
    x = x & 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    x = x ^ (x >> 16)
    return x >> 1
