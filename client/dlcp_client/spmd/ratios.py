"""Means of a number of elements that ranks count: one operation adds up the sum and the count.

The partitioner lets a partial sum pass a division by the count, which must be there before. The
ranks can as well divide the whole sum, as one device does.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from .combined import OF
from .halves import needed_by
from .partitioner import Partition

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Ratio:
    """`total` is the all-reduce of `division`: that of a partial number by the result of `count`,
    an all-reduce over the same axis, converted or not."""

    count: fx.Node
    division: fx.Node
    total: fx.Node


def ratios(partition: Partition) -> list[Ratio]:
    """Those whose sum and count can be added up together."""
    found: list[Ratio] = []
    sums = {one.node for one in partition.collectives if one.kind == "all_reduce"}
    for total in partition.graph.nodes:
        division = total.args[1] if total in sums else None
        if not isinstance(division, fx.Node) or division.target != aten.div.Tensor:
            continue
        partial, by = division.args[:2]
        if division.kwargs or not isinstance(partial, fx.Node) or not isinstance(by, fx.Node):
            continue
        count = by.args[0] if by.target == aten._to_copy.default else by  # noqa: SLF001  # aten's name
        if not isinstance(count, fx.Node) or count not in sums or count.args[2:] != total.args[2:]:
            continue
        apart = count not in needed_by([partial]) and len(partial.users) == len(division.users) == 1
        given = count.args[1]
        one_of_each = all(count is not known.count for known in found)
        if apart and one_of_each and isinstance(given, fx.Node) and _is_exact(given, division):
            found.append(Ratio(count, division, total))
    return found


def _is_exact(count: fx.Node, division: fx.Node) -> bool:
    """Whether float64 holds both numbers: floats, and counts of what is true."""
    made: Any = count.meta.get(OF)
    of: Any = division.meta.get(OF)
    if made is None or of is None or made.meta["val"].dim() or of.meta["val"].dim():
        return False
    counted = made.args[0] if made.target == aten.sum.default else None
    is_count = isinstance(counted, fx.Node) and counted.meta["val"].dtype == torch.bool
    holds_count: bool = is_count or made.meta["val"].is_floating_point()
    return holds_count and bool(of.meta["val"].is_floating_point())
