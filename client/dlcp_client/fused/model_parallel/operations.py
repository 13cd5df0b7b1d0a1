"""Operators for compiled graphs: products whose factor or result travels in pieces.

A group is given by its name, as to torch's functional collectives. If it is not of dlcpd, or has
one rank, they compute what these collectives compute: a compiled graph may come from a cache.
"""

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch._C import _distributed_c10d as torch_c10d
from torch.distributed.distributed_c10d import GroupName

from dlcp_client.c10d import ProcessGroup
from dlcp_client.group import Group
from dlcp_client.products import (
    GatheredProduct,
    ReducedProduct,
    ScatteredProduct,
)

COLLECTIVES: Final = torch.ops._c10d_functional  # noqa: SLF001  # no public name


def group_named(name: str) -> Group[Tensor] | None:
    """The session's group of a process group of dlcpd with several ranks."""
    found: Any = torch_c10d._resolve_process_group(GroupName(name))  # noqa: SLF001  # no public name
    group = found.group if isinstance(found, ProcessGroup) else None
    return group if isinstance(group, Group) else None


@torch.library.custom_op("dlcp_fused::product_reduced", mutates_args=())
def product_reduced(  # noqa: PLR0913, PLR0917  # operators have positional arguments
    a: Sequence[Tensor],
    b: Sequence[Tensor],
    added: Tensor | None,
    group: str,
    pieces: int,
    other_a: Sequence[Tensor],
    other_b: Sequence[Tensor],
) -> list[Tensor]:
    """The sum over ranks of `added` and of the products of `a` and `b`, pair by pair; and the
    products of `other_a` and `other_b`, which are computed while the last sums travel."""
    ranks = group_named(group)
    if ranks is None:
        total = _ended(COLLECTIVES.all_reduce.default(_product(a, b, added), "sum", group))
        return [total, *_products(other_a, other_b)]
    factors = list(zip(a, b, strict=True))
    begun = ReducedProduct(ranks, factors, added=added, pieces=pieces)
    others = _products(other_a, other_b)
    return [begun.result(), *others]


@product_reduced.register_fake
def _(  # noqa: PLR0913, PLR0917  # as above
    a: Sequence[Tensor],
    b: Sequence[Tensor],
    added: Tensor | None,
    group: str,
    pieces: int,
    other_a: Sequence[Tensor],
    other_b: Sequence[Tensor],
) -> list[Tensor]:
    return [_empty(a[0], b[0]), *map(_empty, other_a, other_b)]


@torch.library.custom_op("dlcp_fused::product_scattered", mutates_args=())
def product_scattered(  # noqa: PLR0913, PLR0917  # operators have positional arguments
    a: Sequence[Tensor],
    b: Sequence[Tensor],
    added: Tensor | None,
    size: int,
    group: str,
    pieces: int,
    other_a: Sequence[Tensor],
    other_b: Sequence[Tensor],
) -> list[Tensor]:
    """The same, of which each of `size` ranks gets its rows."""
    ranks = group_named(group)
    if ranks is None:
        sums = _product(a, b, added)
        part = _ended(COLLECTIVES.reduce_scatter_tensor.default(sums, "sum", size, group))
        return [part, *_products(other_a, other_b)]
    factors = list(zip(a, b, strict=True))
    begun = ScatteredProduct(ranks, factors, added=added, pieces=pieces)
    others = _products(other_a, other_b)
    return [begun.result(), *others]


@product_scattered.register_fake
def _(  # noqa: PLR0913, PLR0917  # as above
    a: Sequence[Tensor],
    b: Sequence[Tensor],
    added: Tensor | None,
    size: int,
    group: str,
    pieces: int,
    other_a: Sequence[Tensor],
    other_b: Sequence[Tensor],
) -> list[Tensor]:
    part = a[0].new_empty((a[0].shape[0] // size, b[0].shape[1]))
    return [part, *map(_empty, other_a, other_b)]


@torch.library.custom_op("dlcp_fused::gathered_products", mutates_args=())
def gathered_products(
    a: Tensor, bs: Sequence[Tensor], size: int, group: str, pieces: int
) -> list[Tensor]:
    """The rows of `a` of all ranks, and their product with each of `bs`."""
    ranks = group_named(group)
    if ranks is None:
        whole = _ended(COLLECTIVES.all_gather_into_tensor.default(a, size, group))
        return [whole, *[whole @ b for b in bs]]
    whole, outs = GatheredProduct(ranks, a, bs, pieces=pieces).result()
    return [whole, *outs]


@gathered_products.register_fake
def _(a: Tensor, bs: Sequence[Tensor], size: int, group: str, pieces: int) -> list[Tensor]:
    rows = a.shape[0] * size
    return [a.new_empty((rows, n)) for n in (a.shape[1], *[b.shape[1] for b in bs])]


def _product(a: Sequence[Tensor], b: Sequence[Tensor], added: Tensor | None) -> Tensor:
    total = sum(one @ two for one, two in zip(a, b, strict=True))
    return torch.as_tensor(total if added is None else total + added)


def _products(a: Sequence[Tensor], b: Sequence[Tensor]) -> list[Tensor]:
    return [torch.mm(one, two) for one, two in zip(a, b, strict=True)]


def _empty(a: Tensor, b: Tensor) -> Tensor:
    """The product, without values."""
    return a.new_empty((a.shape[0], b.shape[1]))


def _ended(result: Tensor) -> Tensor:
    found: Tensor = COLLECTIVES.wait_tensor.default(result)
    return found
