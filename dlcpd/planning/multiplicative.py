"""Packs trees by multiplicative weights (Garg and Konemann): no solver, any directed graph."""

from collections.abc import Callable
from typing import Final

from dlcpd.planning.pair_loads import Loads
from dlcpd.planning.trees import Parents

STEP: Final = 0.3  # the rate is at least (1 - STEP)^2 of the best; a linear program closes the gap


def some_arborescences(
    cheapest: Callable[[Loads], Parents],
    load: Callable[[Parents], Loads],
    capacity: Loads,
    step: float = STEP,
) -> dict[Parents, float]:
    """Trees and their weights, which fit `capacity`.

    The cheapest tree by lengths of links takes as much as its scarcest link carries; links become
    longer by the part of their capacity that it took.
    """
    links = len(capacity)
    length = (1 + step) * ((1 + step) * links) ** (-1 / step) / capacity
    found: dict[Parents, float] = {}
    while float(length @ capacity) < 1:
        parents = cheapest(length)
        each = load(parents)
        used = each > 0
        weight = float((capacity[used] / each[used]).min())
        found[parents] = found.get(parents, 0.0) + weight
        length = length * (1 + step * weight * each / capacity)
    total = sum(weight * load(parents) for parents, weight in found.items())
    over = float((total / capacity).max())
    return {parents: weight / over for parents, weight in found.items()}
