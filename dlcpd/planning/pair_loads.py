"""The load that a byte between two hosts puts on links: routes through switches alone.

A pair's bytes are spread evenly over all shortest routes, as switches spread flows (ECMP). Routes
are the switches' own, so a schedule cannot choose them; a tree goes through a host by having it.
Links may be put in groups: a load is then the sum over the group.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from dlcpd.contract.errors import LocalError
from dlcpd.planning.graph import Graph, neighbours

MOST_LOADS: Final = 1 << 26  # numbers of a table: 512 MB; 400 hosts that all differ, 4096 alike
Loads = npt.NDArray[np.float64]


class TooLarge(LocalError):
    """A network has too many different hosts to be planned."""

    code = "too_large_to_plan"


@dataclass(frozen=True, slots=True)
class PairLoads:
    """`loads[a, b, g]`: load on group g per byte from host a to b; `reaches[a, b]`: a route exists.

    `capacity[g]`: the sum of the rates of the group's links, bit/s.
    """

    loads: Loads
    reaches: npt.NDArray[np.bool_]
    capacity: Loads

    def of_ways(self, ways: Sequence[tuple[int, int]]) -> Loads:
        """Loads of one byte on each of the given ways from host to host."""
        pairs = np.array(ways, dtype=np.intp)
        total: Loads = self.loads[pairs[:, 0], pairs[:, 1]].sum(axis=0)
        return total


def pair_loads(graph: Graph, group: Sequence[int] | None = None) -> PairLoads:
    """`group`: a group number for each of the graph's links; without it each is a group.

    Raises: TooLarge.
    """
    numbers = range(len(graph.links)) if group is None else group
    groups = max(numbers) + 1
    if len(graph.hosts) ** 2 * groups > MOST_LOADS:
        raise TooLarge(
            f"{len(graph.hosts)} hosts with {groups} different links are too many to plan; give "
            "equal hosts equal rates in the topology file"
        )
    capacity = np.zeros(groups)
    for number, link in zip(numbers, graph.links, strict=True):
        capacity[number] += link.rate
    at = {link[:2]: number for number, link in zip(numbers, graph.links, strict=True)}
    onwards, hosts = neighbours(graph), len(graph.hosts)
    loads = np.zeros((hosts, hosts, groups))
    reaches = np.zeros((hosts, hosts), dtype=np.bool_)
    for source in range(hosts):
        for target, load in _from(source, graph, onwards, at, groups).items():
            loads[source, target] = load
            reaches[source, target] = True
    return PairLoads(loads, reaches, capacity)


def _from(
    source: int,
    graph: Graph,
    onwards: list[list[int]],
    at: dict[tuple[int, int], int],
    groups: int,
) -> dict[int, Loads]:
    """Loads of a byte from `source` to each host that switches lead to."""
    hosts = len(graph.hosts)
    routes = {source: 1.0}  # number of shortest routes to each node reached
    sums = {source: np.zeros(groups)}  # over those routes
    nearest = [source]
    found: dict[int, Loads] = {}
    while nearest:
        further: dict[int, float] = {}
        for node in nearest:
            for target in onwards[node]:
                if target in routes and target not in further:
                    continue
                if target not in further:
                    further[target] = routes[target] = 0.0
                    sums[target] = np.zeros(groups)
                routes[target] += routes[node]
                sums[target] += sums[node]
                sums[target][at[node, target]] += routes[node]
        found |= {node: sums[node] / routes[node] for node in further if node < hosts}
        nearest = [node for node in further if node >= hosts]
    return found
