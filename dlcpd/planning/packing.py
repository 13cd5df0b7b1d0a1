"""Packs spanning trees into a network, each with a share of the tensor.

all_reduce: a tree is used both ways at once, so an edge loads the routes in both directions. The
best weights of known trees are a linear program. Its prices of links name the tree that would help
most, a minimum spanning tree; the search ends when no tree costs less than 1 (column generation).

broadcast: likewise with arborescences from a root, beginning with those of multiplicative weights.

Then as few trees as possible that keep ENOUGH of the rate: each tree costs transfers.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from dlcpd.planning import solver
from dlcpd.planning.graph import Graph
from dlcpd.planning.multiplicative import some_arborescences
from dlcpd.planning.pair_loads import Loads, PairLoads, pair_loads
from dlcpd.planning.trees import (
    ROOT,
    Parents,
    arborescence,
    both_ways,
    centre,
    edges_of,
    rooted,
    spanning_tree,
)

ENOUGH: Final = 0.95  # of the rate: Blink's 5 %
GAP: Final = 1e-4  # relative distance from the optimum at which the search ends
MOST_ROUNDS: Final = 3000
NEGLIGIBLE: Final = 1e-9  # a share of less is rounding
CANDIDATES: Final = 8  # trees compared for each that is kept
ROUNDING: Final = 1e-7  # of a rate, as exact as HiGHS
_TIE: Final = 1e-6  # of a link's average price: a free link is not loaded without need


@dataclass(frozen=True, slots=True)
class PackedTree:
    """A part of the tensor and its tree: `parents[host]`, ROOT for the root."""

    share: float
    parents: Parents


@dataclass(frozen=True, slots=True)
class Packing:
    """Trees whose shares add up to 1, and the rate at which their links allow it, bit/s."""

    rate: float
    trees: tuple[PackedTree, ...]


class Pool:
    """Trees found so far, with the load of each on groups of links per byte of the tensor."""

    def __init__(self, loads: PairLoads, *, both_ways: bool) -> None:
        self._pairs = loads
        self._both_ways = both_ways
        self._scale = float(loads.capacity.max())
        self.capacity = loads.capacity / self._scale  # HiGHS is exact to 1e-7
        self._least = 0.0  # rate of a tree alone; others are rounding
        self.trees: dict[Parents, Loads] = {}

    def add(self, parents: Parents) -> Loads:
        """Adds a tree unless its rate is rounding, and returns its loads."""
        if parents in self.trees:
            return self.trees[parents]
        ways = both_ways(parents) if self._both_ways else edges_of(parents)
        loads = self._pairs.of_ways(ways)
        if self._alone(loads) >= self._least:
            self.trees[parents] = loads
        return loads

    def narrow(self, cheapest: Loads) -> None:
        """Cut the rates of links that no trees fill: rates that differ by more than HiGHS can tell
        apart would all be zero to it. `cheapest`: loads of the tree that costs least at the prices
        1 / capacity, at which all links together cost their number: by duality no trees have more
        than that many times its rate."""
        alone = self._alone(cheapest)
        most_load = 2 * (len(self._pairs.loads) - 1) * float(self._pairs.loads.max())
        self.capacity = np.minimum(self.capacity, len(cheapest) * alone * most_load)
        widest = float(self.capacity.max())
        self.capacity, self._scale = self.capacity / widest, self._scale * widest
        self._least = ROUNDING * alone / widest

    def _alone(self, loads: Loads) -> float:
        """The rate of a tree that has all links to itself."""
        used = loads > 0
        return float(np.min(self.capacity[used] / loads[used]))

    def generate(self, cheapest: Callable[[Loads], Parents]) -> None:
        """Adds trees until no other would raise the rate. `cheapest`: a tree by prices of links."""
        for _ in range(MOST_ROUNDS):
            weights, prices = solver.most(self._matrix(), self.capacity)
            spread = _TIE * max(float(weights.sum()), 1e-12) / len(prices) / self.capacity
            parents = cheapest(prices + spread)
            known = parents in self.trees
            dear = float(self.add(parents) @ prices) >= 1 - GAP
            if known or dear or parents not in self.trees:
                return

    def packing(self, enough: float = ENOUGH) -> Packing:
        """As few of the trees as possible with `enough` of the largest rate."""
        matrix, trees = self._matrix(), list(self.trees)
        weights, _ = solver.most(matrix, self.capacity)
        total = enough * float(weights.sum())
        kept = min(
            self._thinned(matrix, weights, total), self._heaviest(matrix, weights, total), key=len
        )
        chosen, _ = solver.most(matrix[:, kept], self.capacity)
        # Loads exceed the rates by rounding alone; then they do not.
        over = np.max(matrix[:, kept] @ chosen / self.capacity)
        total = float(chosen.sum())
        rate = total / max(float(over), 1.0)
        shares = sorted(
            (
                (float(weight) / total, trees[tree])
                for weight, tree in zip(chosen, kept, strict=True)
            ),
            reverse=True,
        )
        packed = tuple(PackedTree(*each) for each in shares if each[0] > NEGLIGIBLE)
        return Packing(rate * self._scale, packed)

    def _thinned(self, matrix: Loads, weights: Loads, total: float) -> list[int]:
        """The trees in use that carry `total` without the lightest, each of which is tried once."""
        kept = [int(tree) for tree in np.argsort(-weights, kind="stable") if weights[tree] > 0]
        needed: set[int] = set()
        while len(kept) > 1 and (spare := [tree for tree in kept if tree not in needed]):
            rest = [tree for tree in kept if tree != spare[-1]]
            new, _ = solver.most(matrix[:, rest], self.capacity)
            if float(new.sum()) < total:
                needed.add(spare[-1])
            else:
                kept = [rest[int(t)] for t in np.argsort(-new, kind="stable") if new[t] > 0]
        return kept

    def _heaviest(self, matrix: Loads, weights: Loads, total: float) -> list[int]:
        """Trees that carry `total`, each as heavy as can be.

        Again and again, the tree that can carry most while the others still carry the rest is
        taken with that weight. Candidates are the heaviest trees of the weights found last.
        """
        left, taken = self.capacity.copy(), dict[int, float]()
        rest, nothing = total, (0.0, -1, weights)
        while rest > 10 * ROUNDING * total:
            heavy = [int(tree) for tree in np.argsort(-weights, kind="stable")[:CANDIDATES]]
            found = [
                (float(new[tree]), tree, new)
                for tree in heavy
                if (new := solver.heaviest(matrix, left, tree, rest * (1 - ROUNDING))) is not None
            ]
            weight, tree, others = max(found, key=lambda each: each[:1], default=nothing)
            if weight <= ROUNDING * total:  # by rounding; the weights found last carry the rest
                return [*taken, *(int(tree) for tree in np.flatnonzero(weights > 0))]
            weights = others
            weights[tree] = 0.0
            taken[tree] = taken.get(tree, 0.0) + weight
            left = np.maximum(left - weight * matrix[:, tree], 0.0)
            rest -= weight
        return list(taken)

    def _matrix(self) -> Loads:
        return np.array(list(self.trees.values())).T


def all_reduce(graph: Graph, *, enough: float = ENOUGH) -> Packing:
    """Trees for all_reduce. Raises: SolverMissing; TooLarge; ValueError if hosts are connected
    one way."""
    return both_ways_pool(pair_loads(graph), range(len(graph.hosts))).packing(enough)


def both_ways_pool(loads: PairLoads, hubs: Iterable[int]) -> Pool:
    """Trees that reach the largest rate when all are used both ways at once.

    `hubs`: hosts whose stars it begins with; on one switch, stars are all that it takes.
    """
    hosts = len(loads.reaches)
    pool = Pool(loads, both_ways=True)
    reaches = loads.reaches & loads.reaches.T
    either = loads.loads + loads.loads.transpose(1, 0, 2)

    def cheapest(prices: Loads) -> Parents:
        edges = spanning_tree(np.where(reaches, either @ prices, np.inf))
        return rooted(edges, centre(edges))

    pool.narrow(pool.add(cheapest(1 / pool.capacity)))
    for host in hubs:
        if reaches[host].sum() == hosts - 1:
            pool.add(tuple(ROOT if other == host else host for other in range(hosts)))
    pool.generate(cheapest)
    return pool


def broadcast(graph: Graph, root: int, *, enough: float = ENOUGH) -> Packing:
    """Trees from `root`. Raises: SolverMissing; TooLarge; ValueError if the root does not reach
    all."""
    loads = pair_loads(graph)
    pool = Pool(loads, both_ways=False)

    def cheapest(prices: Loads) -> Parents:
        return arborescence(np.where(loads.reaches, loads.loads @ prices, np.inf), root)

    for parents in some_arborescences(cheapest, pool.add, pool.capacity):
        pool.add(parents)
    pool.generate(cheapest)
    return pool.packing(enough)
