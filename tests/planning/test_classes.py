"""Classes of equal hosts: who is equal, and that plans by classes lose nothing."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcpd.planning import bounds, classes, packing
from dlcpd.planning.graph import Graph, in_racks
from dlcpd.planning.pair_loads import MOST_LOADS, TooLarge
from dlcpd.planning.symmetry import MOST_TURNS, symmetry
from tests.planning.networks import both, dgx_1v, direct, on_a_switch, racks
from tests.planning.packed_trees import check

pytest.importorskip("scipy", reason="scipy, which solves linear programs, is not installed")

RACKS = st.lists(
    st.tuples(
        st.sampled_from((20, 60)), st.lists(st.sampled_from((10, 30)), min_size=1, max_size=4)
    ),
    min_size=1,
    max_size=5,
).filter(lambda given: sum(len(rates) for _, rates in given) > 1)


def built(given_racks: list[tuple[int, list[int]]]) -> Graph:
    names = [[f"{n}.{k}" for k in range(len(rates))] for n, (_, rates) in enumerate(given_racks)]
    hosts = {
        name: both(rate)
        for members, (_, rates) in zip(names, given_racks, strict=True)
        for name, rate in zip(members, rates, strict=True)
    }
    uplinks = {f"r{n}": both(uplink) for n, (uplink, _) in enumerate(given_racks)}
    return in_racks(hosts, uplinks, names)


def test_hosts_of_equal_racks_are_equal() -> None:
    graph = built([(20, [10, 30]), (20, [30, 10]), (60, [10, 10])])
    assert classes.classes_of_hosts(graph) == (("0.0", "1.1"), ("0.1", "1.0"), ("2.0", "2.1"))
    assert classes.classes_of_hosts(on_a_switch([1, 2, 1])) == (("h0", "h2"), ("h1",))
    assert len(classes.classes_of_hosts(dgx_1v())) == 8


@pytest.mark.parametrize(
    "graph",
    [
        dgx_1v(),
        direct(2, [(0, 1, 1), (1, 0, 1)]),
        direct(3, [(0, 1, 1), (1, 0, 1), (1, 2, 1), (2, 1, 1)]),
        Graph(("a",), (), ()),
        direct(3, [(0, 1, 1), (1, 2, 1)]),
    ],
)
def test_a_network_without_a_tree_of_switches_has_no_classes(graph: Graph) -> None:
    assert symmetry(graph) is None


def test_such_a_network_is_packed_as_it_is() -> None:
    assert classes.all_reduce(dgx_1v()) == packing.all_reduce(dgx_1v())


@given(RACKS)
@settings(max_examples=40)
def test_a_plan_by_classes_is_as_fast_as_one_without(
    given_racks: list[tuple[int, list[int]]],
) -> None:
    graph = built(given_racks)
    by_classes = classes.all_reduce(graph, enough=1)
    check(graph, by_classes, both_ways=True)
    assert by_classes.rate == pytest.approx(packing.all_reduce(graph, enough=1).rate, rel=1e-3)
    assert by_classes.rate <= float(bounds.all_reduce(graph).rate) * (1 + 1e-9)


@given(RACKS)
@settings(max_examples=40)
def test_turns_bring_each_host_to_each_equal_place(
    given_racks: list[tuple[int, list[int]]],
) -> None:
    graph = built(given_racks)
    found = symmetry(graph)
    assert found is not None
    loads = [(float(node), 0.0) for node in range(graph.nodes)]  # all differ: all turns
    total = [0] * graph.nodes
    links = {link[:2]: link.rate for link in graph.links}
    for image in found.images(found.turns(loads)):
        assert sorted(image) == list(range(graph.nodes))
        # An image of the network is the network itself.
        assert {(image[a], image[b]): rate for (a, b), rate in links.items()} == links
        for node, place in enumerate(image):
            total[place] += node
    for one in range(graph.nodes):
        for other in range(one):
            assert found.orbits[one] != found.orbits[other] or total[one] == total[other]


def test_no_turns_where_loads_are_equal() -> None:
    found = symmetry(racks(3, 4, 10, 20))
    assert found is not None
    assert found.turns([(1.0, 1.0)] * len(found.above)) == [1, 1, 1]


def test_turns_are_limited() -> None:
    sizes = (31, 37, 41)
    graph = on_a_switch([rate for rate, size in enumerate(sizes, 1) for _ in range(size)])
    found = symmetry(graph)
    assert found is not None and MOST_TURNS < 31 * 37
    assert found.turns([(float(node), 0.0) for node in range(graph.nodes)])[0] == 41


def test_too_many_different_hosts_are_refused() -> None:
    hosts = 450
    assert hosts**2 * 2 * hosts > MOST_LOADS
    with pytest.raises(TooLarge, match="450 hosts with 900 different links are too many to plan"):
        packing.all_reduce(on_a_switch(list(range(1, hosts + 1))))


@pytest.mark.heavy
@pytest.mark.parametrize(
    "graph",
    [
        on_a_switch([100] * 12 + [400] * 500),
        racks(16, 32, 100, 800),
        racks(16, 32, 400, 100),
        racks(8, 64, 100, 3200),
    ],
)
def test_512_hosts(graph: Graph) -> None:
    packed = classes.all_reduce(graph)
    bound = float(bounds.all_reduce(graph).rate)
    assert 0.949 * bound <= packed.rate <= bound * (1 + 1e-9)
    assert len(packed.trees) <= 1024
    assert {len(tree.parents) for tree in packed.trees} == {512}
