"""Checks a packing against its network."""

import numpy as np
import pytest

from dlcpd.planning.graph import Graph
from dlcpd.planning.packing import Packing
from dlcpd.planning.pair_loads import pair_loads
from dlcpd.planning.trees import ROOT, Parents, edges_of


def depth(parents: Parents, host: int) -> int:
    """Raises: AssertionError if the host does not descend from the root."""
    steps = 0
    while parents[host] != ROOT:
        host, steps = parents[host], steps + 1
        assert steps < len(parents)
    return steps


def check(graph: Graph, packed: Packing, *, both_ways: bool) -> None:
    """Every tree spans, shares add up, and no link carries more than its rate."""
    loads = pair_loads(graph)
    total = np.zeros(len(graph.links))
    for share, parents in ((tree.share, tree.parents) for tree in packed.trees):
        assert share > 0 and parents.count(ROOT) == 1
        for host in range(len(graph.hosts)):
            depth(parents, host)
        ways = edges_of(parents)
        ways += [(b, a) for a, b in ways] if both_ways else []
        assert all(loads.reaches[way] for way in ways)
        total += share * packed.rate * loads.of_ways(ways)
    assert sum(tree.share for tree in packed.trees) == pytest.approx(1)
    assert (total <= loads.capacity * (1 + 1e-9)).all()
