"""Plans for hundreds of hosts by classes of equal ones (SyCCL): a small problem, then its images.

The links of equal nodes are one row of the linear program, with the sum of their rates. That loses
nothing: the average of a packing's images under all exchanges of equal nodes has the same rate, and
equal loads on equal links. Each tree found is then replaced by its turns, each with an equal part
of its share, so that equal hosts carry equal loads. Other networks are packed without classes.
"""

import numpy as np

from dlcpd.planning import packing
from dlcpd.planning.graph import Graph
from dlcpd.planning.packing import ENOUGH, PackedTree, Packing
from dlcpd.planning.pair_loads import Loads, pair_loads
from dlcpd.planning.symmetry import Symmetry, symmetry
from dlcpd.planning.trees import ROOT, Parents, edges_of


def all_reduce(graph: Graph, *, enough: float = ENOUGH) -> Packing:
    """Trees for all_reduce, as of `packing.all_reduce`, and in more and equal parts.

    Raises: SolverMissing; ValueError if hosts are connected one way; TooLarge.
    """
    found = symmetry(graph)
    if found is None:
        return packing.all_reduce(graph, enough=enough)
    pairs = pair_loads(graph, _groups(graph, found))
    first = {orbit: host for host, orbit in reversed(list(enumerate(_of_hosts(graph, found))))}
    few = packing.both_ways_pool(pairs, sorted(first.values())).packing(enough)
    return _turned(graph, found, few)


def classes_of_hosts(graph: Graph) -> tuple[tuple[str, ...], ...]:
    """Names of hosts that are equal to each other, each class in the order of the hosts."""
    found = symmetry(graph)
    orbits = range(len(graph.hosts)) if found is None else _of_hosts(graph, found)
    names: dict[int, list[str]] = {}
    for host, orbit in zip(graph.hosts, orbits, strict=True):
        names.setdefault(orbit, []).append(host)
    return tuple(map(tuple, names.values()))


def _of_hosts(graph: Graph, found: Symmetry) -> tuple[int, ...]:
    return found.orbits[: len(graph.hosts)]


def _groups(graph: Graph, found: Symmetry) -> list[int]:
    """The group of each link: by the orbit of its end further from the root, and the direction."""
    known: dict[tuple[int, bool], int] = {}
    groups = []
    for link in graph.links:
        up = found.above[link.source] == link.target
        key = (found.orbits[link.source if up else link.target], up)
        groups.append(known.setdefault(key, len(known)))
    return groups


def _turned(graph: Graph, found: Symmetry, few: Packing) -> Packing:
    """Each tree as its turns, and the rate that all links allow."""
    hosts = len(graph.hosts)
    total = np.zeros((graph.nodes, 2))
    trees: dict[Parents, float] = {}
    for tree in few.trees:
        loads = _loads(found, tree.parents)
        turns = found.turns([(float(up), float(down)) for up, down in loads])
        share = tree.share / int(np.prod(turns))
        for image in found.images(turns):
            total[image] += share * loads
            parents = [ROOT] * hosts
            for host, parent in enumerate(tree.parents):
                if parent != ROOT:
                    parents[image[host]] = image[parent]
            key = tuple(parents)
            trees[key] = trees.get(key, 0.0) + share
    rates = np.full((graph.nodes, 2), np.inf)
    for link in graph.links:
        up = found.above[link.source] == link.target
        rates[link.source if up else link.target, 0 if up else 1] = link.rate
    used = total > 0
    rate = float(np.min(rates[used] / total[used]))
    packed = (PackedTree(share, parents) for parents, share in trees.items())
    return Packing(rate, tuple(sorted(packed, key=lambda tree: -tree.share)))


def _loads(found: Symmetry, parents: Parents) -> Loads:
    """Loads of a tree used both ways on the links of each node to and from the node above it."""
    depth = {node: number for number, level in enumerate(found.levels) for node in level}
    loads = np.zeros((len(found.above), 2))
    for edge in edges_of(parents):
        lower, higher = edge
        while lower != higher:  # the deeper end moves up until both meet
            if depth[lower] < depth[higher]:
                lower, higher = higher, lower
            loads[lower] += 1
            lower = found.above[lower]
    return loads
