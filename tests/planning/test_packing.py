"""Packings: every tree spans, no link is over its rate, and the rate is that of the bound."""

import sys
from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcpd.planning import bounds, packing, solver
from dlcpd.planning.graph import DirectedLink, Graph
from dlcpd.planning.multiplicative import some_arborescences
from dlcpd.planning.pair_loads import Loads, pair_loads
from dlcpd.planning.trees import (
    ROOT,
    Parents,
    arborescence,
    centre,
    edges_of,
    rooted,
    spanning_tree,
)
from tests.planning.networks import dgx_1v, direct, on_a_switch, racks, random_directed
from tests.planning.packed_trees import check, depth

pytest.importorskip("scipy", reason="scipy, which solves linear programs, is not installed")


@pytest.mark.parametrize("root", range(8))
def test_a_dgx_1v_broadcasts_with_few_trees(root: int) -> None:
    graph = dgx_1v()
    packed = packing.broadcast(graph, root)
    check(graph, packed, both_ways=False)
    assert packed.rate == pytest.approx(6) and len(packed.trees) <= 6
    assert all(tree.parents[root] == ROOT for tree in packed.trees)


@pytest.mark.parametrize(
    "first", [pytest.param(n, marks=[] if n < 40 else pytest.mark.heavy) for n in range(0, 200, 20)]
)
def test_random_directed_graphs_reach_the_least_cut(first: int) -> None:
    for seed in range(first, first + 20):
        graph = random_directed(seed)
        packed = packing.broadcast(graph, 0, enough=0.99)
        check(graph, packed, both_ways=False)
        assert packed.rate >= 0.98 * bounds.broadcast(graph, 0).rate, seed


# The table of the research: packed rate, and the number of trees that kept 95 % of it
@pytest.mark.parametrize(
    ("graph", "rate", "trees"),
    [
        (on_a_switch([1000] * 4), 2000 / 3, 4),
        (on_a_switch([100, 400, 400, 400]), 100, 1),
        (on_a_switch([100] + [400] * 7), 100, 2),
        (on_a_switch([100] * 2 + [1000] * 4), 100, 1),
        (racks(2, 2, 400, 200), 200, 1),
        (racks(2, 4, 400, 400), 1600 / 7, 5),
        (racks(2, 8, 1000, 2000), 1600 / 3, 10),
        (dgx_1v(), 24 / 7, 9),
    ],
)
def test_all_reduce_reaches_its_bound(graph: Graph, rate: float, trees: int) -> None:
    whole = packing.all_reduce(graph, enough=1)
    check(graph, whole, both_ways=True)
    assert whole.rate == pytest.approx(rate, rel=1e-3)
    assert whole.rate == pytest.approx(float(bounds.all_reduce(graph).rate), rel=1e-3)
    few = packing.all_reduce(graph)
    check(graph, few, both_ways=True)
    assert few.rate >= 0.95 * rate * (1 - 1e-3) and len(few.trees) <= trees


@given(st.integers(0, 10_000))
@settings(max_examples=25)
def test_links_equal_both_ways_reach_the_bound(seed: int) -> None:
    """The theorem of Tutte and Nash-Williams."""
    one_way = random_directed(seed)
    links = [(a, b, rate) for a, b, rate in one_way.links if a < b]
    links += [(host, host + 1, 1) for host in range(len(one_way.hosts) - 1)]
    graph = direct(len(one_way.hosts), [*links, *((b, a, rate) for a, b, rate in links)])
    packed = packing.all_reduce(graph, enough=1)
    check(graph, packed, both_ways=True)
    assert packed.rate == pytest.approx(float(bounds.all_reduce(graph).rate), rel=1e-3)


@pytest.mark.heavy
@pytest.mark.parametrize(
    "graph",
    [
        on_a_switch([100] * 4 + [250] * 20 + [400] * 40),
        racks(4, 16, 400, 1600),
        racks(8, 8, 400, 800),
    ],
)
def test_64_hosts(graph: Graph) -> None:
    packed = packing.all_reduce(graph)
    check(graph, packed, both_ways=True)
    assert packed.rate >= 0.949 * bounds.all_reduce(graph).rate


def test_spines_share_the_routes_of_a_pair() -> None:
    """h0 - leaf 2, h1 - leaf 3, and spines 4 and 5 between the leaves."""
    ends = [(0, 2, 8), (1, 3, 8), (2, 4, 3), (2, 5, 3), (4, 3, 3), (5, 3, 3)]
    links = sorted(DirectedLink(*way) for a, b, r in ends for way in ((a, b, r), (b, a, r)))
    graph = Graph(("h0", "h1"), ("l0", "l1", "s0", "s1"), tuple(links))
    there = pair_loads(graph).loads[0, 1]
    carried = {link[:2]: load for link, load in zip(graph.links, there, strict=True) if load}
    assert carried == {(0, 2): 1, (2, 4): 0.5, (2, 5): 0.5, (4, 3): 0.5, (5, 3): 0.5, (3, 1): 1}
    assert packing.all_reduce(graph).rate == pytest.approx(6)


def test_a_one_way_connection_carries_no_tree_that_is_used_both_ways() -> None:
    graph = direct(3, [(0, 1, 1), (1, 2, 1), (2, 0, 1)])
    with pytest.raises(ValueError, match="one way"):
        packing.all_reduce(graph)
    assert packing.broadcast(graph, 1).trees[0].parents == (2, ROOT, 1)


def test_a_root_that_does_not_reach_all() -> None:
    with pytest.raises(ValueError, match="does not reach"):
        packing.broadcast(direct(3, [(0, 1, 1), (1, 0, 1), (2, 0, 1)]), 0)


def test_without_scipy_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(solver.SolverMissing, match=r"pip install 'dlcpd\[planner\]'; without it"):
        packing.all_reduce(on_a_switch([1, 1]))


def test_weights_that_no_solver_finds_are_an_error() -> None:
    with pytest.raises(ArithmeticError, match="HiGHS"):
        solver.most(np.zeros((1, 1)), np.ones(1))
    assert solver.heaviest(np.ones((1, 1)), np.ones(1), 0, 2.0) is None


@given(st.integers(0, 10_000))
def test_multiplicative_weights_alone_come_near(seed: int) -> None:
    graph = random_directed(seed)
    loads = pair_loads(graph)

    def cheapest(prices: Loads) -> Parents:
        return arborescence(np.where(loads.reaches, loads.loads @ prices, np.inf), 0)

    def load(parents: Parents) -> Loads:
        return loads.of_ways(edges_of(parents))

    found = some_arborescences(cheapest, load, loads.capacity, step=0.2)
    total = sum(weight * load(parents) for parents, weight in found.items())
    assert (total <= loads.capacity * (1 + 1e-9)).all()
    assert sum(found.values()) >= 0.64 * bounds.broadcast(graph, 0).rate


COSTS = st.integers(3, 5).flatmap(
    lambda n: st.lists(st.integers(0, 9), min_size=n * n, max_size=n * n)
)


@given(COSTS)
def test_an_arborescence_is_the_cheapest_of_all(costs: list[int]) -> None:
    nodes = int(len(costs) ** 0.5)
    cost = np.array(costs, float).reshape(nodes, nodes)
    found = arborescence(cost, 1)

    def price(parents: tuple[int, ...]) -> float:
        return sum(float(cost[a, b]) for b, a in enumerate(parents) if a != ROOT)

    def tree(parents: tuple[int, ...]) -> bool:
        try:
            return all(depth(parents, node) >= 0 for node in range(nodes))
        except AssertionError:
            return False

    every = product(*[[ROOT] if node == 1 else range(nodes) for node in range(nodes)])
    assert tree(found) and price(found) == min(price(each) for each in every if tree(each))


@given(COSTS)
def test_a_spanning_tree_is_the_cheapest_of_all(costs: list[int]) -> None:
    nodes = int(len(costs) ** 0.5)
    cost = np.array(costs, float).reshape(nodes, nodes)
    cost += cost.T
    edges = spanning_tree(cost)
    root = centre(edges)
    parents = rooted(edges, root)
    found = sum(float(cost[edge]) for edge in edges)
    # A tree that is cheapest from a root is cheapest without one where costs are symmetric.
    assert found == sum(float(cost[way]) for way in edges_of(arborescence(cost, root)))
    assert Counter(map(frozenset, edges)) == Counter(map(frozenset, edges_of(parents)))
    least = [max(depth(rooted(edges, node), n) for n in range(nodes)) for node in range(nodes)]
    assert least[root] == min(least)


@pytest.mark.parametrize(
    ("rates", "rate"),
    [
        ((1, 0, 10**15), 1),  # the fast link leads to a switch without other hosts
        ((10**15, 1, 10**15), 10**15),
        ((1, 1, 10**15), 2),
    ],
)
def test_rates_that_differ_by_more_than_a_solver_tells_apart(
    rates: tuple[int, int, int], rate: float
) -> None:
    ends = ((0, 1), (0, 2), (1, 2))
    hosts, switches = (("a", "b"), ("s",)) if not rates[1] else (("a", "b", "c"), ())
    both = [
        DirectedLink(*way, each)
        for (a, b), each in zip(ends, rates, strict=True)
        for way in ((a, b), (b, a))
        if each
    ]
    graph = Graph(hosts, switches, tuple(sorted(both)))
    packed = packing.all_reduce(graph)
    check(graph, packed, both_ways=True)
    assert packed.rate == pytest.approx(rate)
