"""Cheapest trees: Prim's for ways used in both directions, Chu, Liu and Edmonds' from a root."""

from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

ROOT = -1  # the parent of a root
Parents = tuple[int, ...]


def spanning_tree(cost: npt.NDArray[np.float64]) -> list[tuple[int, int]]:
    """The edges of a spanning tree of least cost. `cost` is symmetric; infinite: no edge.

    Raises: ValueError if the edges do not connect all.
    """
    nodes = len(cost)
    best, parent = cost[0].copy(), np.zeros(nodes, dtype=np.intp)
    outside = np.ones(nodes, dtype=np.bool_)
    outside[0] = False
    edges = []
    for _ in range(nodes - 1):
        node = int(np.argmin(np.where(outside, best, np.inf)))
        if not outside[node] or not np.isfinite(best[node]):
            raise ValueError("some hosts are connected through others only one way")
        edges.append((int(parent[node]), node))
        outside[node] = False
        nearer = outside & (cost[node] < best)
        best[nearer], parent[nearer] = cost[node][nearer], node
    return edges


def arborescence(cost: npt.NDArray[np.float64], root: int) -> Parents:
    """The parents of a tree of least cost from `root`. `cost[a, b]` of the way from a to b;
    infinite: none. Raises: ValueError if the root does not reach all.
    """
    nodes = len(cost)
    entering = np.where(np.eye(nodes, dtype=np.bool_), np.inf, cost)
    entering[:, root] = np.inf
    return _cheapest(entering, root)


def _cheapest(cost: npt.NDArray[np.float64], root: int) -> Parents:
    nodes = len(cost)
    parent = np.argmin(cost, axis=0)
    least = cost[parent, np.arange(nodes)]
    parent[root] = ROOT
    if not np.isfinite(np.delete(least, root)).all():
        raise ValueError("the root does not reach all hosts")
    ring = _ring([int(each) for each in parent])
    if not ring:
        return tuple(int(each) for each in parent)
    # The ring becomes one node, the last: a way into it saves the ring's own way to that place.
    inside = np.array(ring)
    others = np.array([node for node in range(nodes) if node not in ring])
    into = cost[np.ix_(others, inside)] - least[inside]
    out = cost[np.ix_(inside, others)]
    smaller = np.full((len(others) + 1,) * 2, np.inf)
    smaller[:-1, :-1] = cost[np.ix_(others, others)]
    smaller[:-1, -1], smaller[-1, :-1] = into.min(axis=1), out.min(axis=0)
    above = _cheapest(smaller, int(np.flatnonzero(others == root)[0]))
    for position, over in enumerate(above[:-1]):
        if over == len(others):
            parent[others[position]] = inside[int(out[:, position].argmin())]
        elif over != ROOT:
            parent[others[position]] = others[over]
    entry = above[-1]
    parent[inside[int(into[entry].argmin())]] = others[entry]
    return tuple(int(each) for each in parent)


def _ring(parent: Sequence[int]) -> list[int]:
    """Nodes that are each other's ancestors; empty in a tree."""
    checked: set[int] = set()
    for start in range(len(parent)):
        way: list[int] = []
        node = start
        while node != ROOT and node not in checked:
            checked.add(node)
            way.append(node)
            node = parent[node]
        if node in way:
            return way[way.index(node) :]
    return []


def rooted(edges: Sequence[tuple[int, int]], root: int) -> Parents:
    """The parents of a tree with these edges."""
    near: list[list[int]] = [[] for _ in range(len(edges) + 1)]
    for a, b in edges:
        near[a].append(b)
        near[b].append(a)
    parent = [ROOT] * len(near)
    waiting = deque([root])
    while waiting:
        node = waiting.popleft()
        for other in near[node]:
            if other != parent[node]:
                parent[other] = node
                waiting.append(other)
    return tuple(parent)


def centre(edges: Sequence[tuple[int, int]]) -> int:
    """The root with the least depth, the lowest number of two."""
    near: list[set[int]] = [set() for _ in range(len(edges) + 1)]
    for a, b in edges:
        near[a].add(b)
        near[b].add(a)
    left, leaves = len(near), [node for node, others in enumerate(near) if len(others) <= 1]
    while left > 2:
        left -= len(leaves)
        inner: list[int] = []
        for leaf in leaves:
            (other,) = near[leaf]
            near[other].discard(leaf)
            if len(near[other]) == 1:
                inner.append(other)
        leaves = inner
    return min(leaves)


def edges_of(parents: Parents) -> list[tuple[int, int]]:
    """The ways from parents to children."""
    return [(parent, child) for child, parent in enumerate(parents) if parent != ROOT]


def both_ways(parents: Parents) -> list[tuple[int, int]]:
    """The ways from parents to children and back."""
    ways = edges_of(parents)
    return ways + [(child, parent) for parent, child in ways]
