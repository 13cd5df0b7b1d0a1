"""Equal hosts and racks of a network whose switches form a tree.

Hosts with equal rates on one switch are equal, and so are switches with equal uplinks and equal
nodes below. To exchange two equal nodes, with all below them, leaves the network as it is. Turns of
equal nodes, level by level, bring each node to the place of each of its equals equally often.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import lcm
from typing import Final

from dlcpd.planning.graph import Graph, neighbours
from dlcpd.planning.trees import ROOT, Parents, centre, rooted

MOST_TURNS: Final = 1024  # on a level; with more, as many as its largest class has nodes


@dataclass(frozen=True, slots=True)
class Symmetry:
    """`above[node]`: the next node towards the root. `below[node]`: its children in classes.

    `levels`: nodes by their distance from the root. `orbits[node]`: equal for nodes that can take
    each other's place.
    """

    above: Parents
    below: tuple[tuple[tuple[int, ...], ...], ...]
    levels: tuple[tuple[int, ...], ...]
    orbits: tuple[int, ...]

    def images(self, turns: Sequence[int]) -> Iterator[list[int]]:
        """For each combination of turns (their number by level): the new place of each node."""
        for each in product(*map(range, turns)):
            image = list(range(len(self.above)))
            for turn, level in zip(each, self.levels, strict=False):
                for node in level:
                    there = self.below[image[node]]
                    for equals, places in zip(self.below[node], there, strict=True):
                        for number, child in enumerate(equals):
                            image[child] = places[(number + turn) % len(places)]
            yield image

    def turns(self, loads: Sequence[tuple[float, ...]]) -> list[int]:
        """How many turns each level needs so that equal nodes get equal loads, which are given."""
        marks: dict[int, int] = {}  # equal for nodes with equal loads on them and below
        known: dict[object, int] = {}
        counts: list[int] = []
        for level in reversed(self.levels):
            sizes = [1]
            for node in level:
                inner = []
                for equals in self.below[node]:
                    found = sorted(marks[child] for child in equals)
                    inner.append(tuple(found))
                    if found[0] != found[-1]:
                        sizes.append(len(equals))
                key = (loads[node], tuple(inner))
                marks[node] = known.setdefault(key, len(known))
            count = lcm(*sizes)
            counts.insert(0, count if count <= MOST_TURNS else max(sizes))
        return counts


def symmetry(graph: Graph) -> Symmetry | None:
    """None: switches do not form a tree with hosts at its ends."""
    near = neighbours(graph)
    hosts = len(graph.hosts)
    edges = [link[:2] for link in graph.links if link.source < link.target]
    pairs = {link[:2] for link in graph.links}
    if len(edges) != graph.nodes - 1 or len(pairs) != 2 * len(edges):
        return None
    if hosts < 2 or any(len(near[host]) != 1 or near[host][0] < hosts for host in range(hosts)):
        return None
    above = rooted(edges, centre(edges))
    levels = _levels(above)
    classes = _classes(graph, above, levels)
    below = tuple(_by_class(children, classes) for children in _children(above))
    orbits = [0] * graph.nodes
    known: dict[tuple[int, int], int] = {}
    for level in levels[1:]:
        for node in level:
            key = (orbits[above[node]], classes[node])
            orbits[node] = known.setdefault(key, len(known) + 1)
    return Symmetry(above, below, levels, tuple(orbits))


def _children(above: Parents) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in above]
    for node, parent in enumerate(above):
        if parent != ROOT:
            found[parent].append(node)
    return found


def _levels(above: Parents) -> tuple[tuple[int, ...], ...]:
    children = _children(above)
    levels: list[tuple[int, ...]] = [(above.index(ROOT),)]
    while below := tuple(child for node in levels[-1] for child in children[node]):
        levels.append(below)
    return tuple(levels)


def _classes(graph: Graph, above: Parents, levels: tuple[tuple[int, ...], ...]) -> list[int]:
    """Equal numbers for nodes with equal rates towards the root and equal nodes below."""
    rates = {link[:2]: link.rate for link in graph.links}
    children, classes = _children(above), [0] * graph.nodes
    known: dict[object, int] = {}
    for level in reversed(levels):
        for node in level:
            over = above[node]
            key = (
                node < len(graph.hosts),
                (rates[node, over], rates[over, node]) if over != ROOT else None,
                tuple(sorted(classes[child] for child in children[node])),
            )
            classes[node] = known.setdefault(key, len(known))
    return classes


def _by_class(nodes: Sequence[int], classes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    found: dict[int, list[int]] = {}
    for node in sorted(nodes, key=lambda node: (classes[node], node)):
        found.setdefault(classes[node], []).append(node)
    return tuple(map(tuple, found.values()))
