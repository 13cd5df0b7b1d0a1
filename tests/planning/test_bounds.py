"""Bounds: equal to closed forms and to a search over all cuts and groups, and proved by cuts."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.planning import bounds
from dlcpd.planning.graph import Graph, Rates, in_racks, one_switch
from dlcpd.planning.max_flow import FlowNetwork
from dlcpd.schedules.shares import one_switch_bound, one_switch_shares
from tests.planning.networks import both, dgx_1v, direct, on_a_switch, racks, random_directed

RATES = st.integers(1, 40)
PAIRS = st.builds(Rates, RATES, RATES)


def bound_of(hosts: Sequence[Rates]) -> Fraction:
    send, receive = zip(*hosts, strict=True)
    return one_switch_bound(send, receive)


def shares_of(hosts: Sequence[Rates]) -> tuple[Fraction, ...]:
    send, receive = zip(*hosts, strict=True)
    return one_switch_shares(send, receive)


def test_a_flow_takes_a_longer_way_back_through_an_edge() -> None:
    edges = [(0, 1, 1), (0, 2, 1), (1, 2, 1), (1, 3, 1), (2, 3, 1)]
    network = FlowNetwork(4, edges)
    assert network.flow(0, 3) == 2
    assert network.flow(0, 3) == 2  # from the given capacities again
    assert network.side(0) == {0}
    assert FlowNetwork(2).flow(0, 1) == 0


@given(st.integers(0, 10_000))
def test_a_flow_is_the_least_cut(seed: int) -> None:
    graph = random_directed(seed)
    network = FlowNetwork(graph.nodes, graph.links)
    last = graph.nodes - 1
    flow = network.flow(0, last)
    assert flow == graph.leaving(network.side(0))
    middle = range(1, last)
    cuts = [{0, *some} for k in range(len(middle) + 1) for some in combinations(middle, k)]
    assert flow == min(map(graph.leaving, cuts))


def partitions(members: Sequence[int]) -> Iterator[list[list[int]]]:
    if not members:
        yield []
        return
    first, *rest = members
    for others in partitions(rest):
        yield [[first], *others]
        for number, group in enumerate(others):
            yield [*others[:number], [first, *group], *others[number + 1 :]]


def searched(graph: Graph) -> Fraction:
    """The bound of all_reduce from every cut and every partition. No switches."""
    hosts = range(len(graph.hosts))
    subsets = [some for k in range(1, len(hosts)) for some in combinations(hosts, k)]
    least = Fraction(min(map(graph.leaving, subsets)))
    for way in (graph, graph.backwards()):
        for groups in partitions(list(hosts)):
            if len(groups) > 1:
                least = min(least, Fraction(sum(map(way.leaving, groups)), 2 * len(groups) - 2))
    return least


@given(st.integers(0, 10_000))
def test_all_reduce_is_the_least_of_all_cuts_and_groups(seed: int) -> None:
    graph = random_directed(seed)
    if len(graph.hosts) > 6:  # 203 partitions of 6 hosts, 4140 of 8
        return
    found = bounds.all_reduce(graph)
    assert found.proved(graph)
    assert found.rate == searched(graph)


@given(st.integers(0, 10_000))
def test_all_gather_is_the_least_of_all_cuts(seed: int) -> None:
    graph = random_directed(seed)
    hosts = range(len(graph.hosts))
    found = bounds.all_gather(graph)
    assert found.proved(graph)
    assert found.rate == min(
        Fraction(graph.leaving(some) * len(hosts), k)
        for k in hosts[1:]
        for some in combinations(hosts, k)
    )


@given(st.lists(PAIRS, min_size=2, max_size=9))
def test_one_switch_agrees_with_its_closed_form(rates: list[Rates]) -> None:
    graph = one_switch({f"h{number}": each for number, each in enumerate(rates)})
    found = bounds.all_reduce(graph)
    assert found.proved(graph)
    assert found.rate == bound_of(rates)


@given(st.lists(RATES, min_size=2, max_size=12))
def test_shares_carry_the_rate_of_one_switch(rates: list[int]) -> None:
    hosts = list(map(both, rates))
    rate, shares = bound_of(hosts), shares_of(hosts)
    assert sum(shares) == 1 and min(shares) >= 0
    for share, most in zip(shares, rates, strict=True):
        assert rate * (1 + share * (len(rates) - 2)) <= most


@given(st.lists(PAIRS, min_size=2, max_size=12))
def test_shares_add_up_where_directions_differ(hosts: list[Rates]) -> None:
    shares = shares_of(hosts)
    assert sum(shares) == 1 and min(shares) >= 0


def test_equal_hosts_own_equal_shares() -> None:
    assert shares_of([both(7)] * 5) == (Fraction(1, 5),) * 5
    assert shares_of([both(100), *[both(400)] * 3])[0] == 0
    assert shares_of([Rates(100, 1), Rates(1, 100), Rates(1, 100)]) == (Fraction(1, 3),) * 3


RACK = st.tuples(RATES, st.lists(RATES, min_size=1, max_size=4))


@given(st.lists(RACK, min_size=1, max_size=4).filter(lambda r: sum(len(m) for _, m in r) > 1))
def test_racks_are_bounded_by_their_closed_form(given_racks: list[tuple[int, list[int]]]) -> None:
    members = [[f"{n}.{k}" for k in range(len(m))] for n, (_, m) in enumerate(given_racks)]
    hosts = {
        name: both(rate)
        for names, (_, rates) in zip(members, given_racks, strict=True)
        for name, rate in zip(names, rates, strict=True)
    }
    uplinks = {f"r{n}": both(up) for n, (up, _) in enumerate(given_racks)}
    graph = in_racks(hosts, uplinks, members)
    found = bounds.all_reduce(graph)
    assert found.proved(graph)
    assert found.rate <= bound_of(list(hosts.values()))
    assert len(uplinks) == 1 or found.rate <= bound_of(list(uplinks.values()))


@pytest.mark.parametrize(
    ("graph", "rate"),
    [
        (on_a_switch([400] * 4), Fraction(800, 3)),
        (on_a_switch([100, 400, 400, 400]), 100),
        (on_a_switch([100] + [400] * 7), 100),
        (on_a_switch([100] * 2 + [1000] * 4), 100),
        (racks(2, 2, 400, 200), 200),
        (racks(2, 4, 400, 400), Fraction(1600, 7)),
        (racks(2, 8, 1000, 2000), Fraction(1600, 3)),
        (racks(4, 16, 400, 100), Fraction(200, 3)),
        (dgx_1v(), Fraction(24, 7)),
    ],
)
def test_the_bounds_of_known_networks(graph: Graph, rate: Fraction) -> None:
    found = bounds.all_reduce(graph)
    assert found.rate == rate and found.proved(graph)


def test_a_dgx_1v_broadcasts_at_the_rate_of_six_links() -> None:
    graph = dgx_1v()
    assert {bounds.broadcast(graph, root).rate for root in range(8)} == {6}
    assert bounds.broadcast(graph, 3).proved(graph)


def test_a_slow_uplink_proves_the_bound_of_its_rack() -> None:
    graph = racks(2, 4, 100, 30)
    (side,) = bounds.all_reduce(graph).sides
    assert graph.members(side) in ({0, 1, 2, 3}, {4, 5, 6, 7})


def test_links_that_carry_more_one_way_bound_what_hosts_receive() -> None:
    graph = direct(3, [(0, 1, 9), (1, 2, 9), (2, 0, 9), (1, 0, 1), (2, 1, 1), (0, 2, 1)])
    assert bounds.all_reduce(graph).rate == searched(graph) == Fraction(30, 4)
    hosts = [Rates(9, 9), Rates(9, 1), Rates(9, 9)]
    fast = one_switch({f"h{number}": each for number, each in enumerate(hosts)})
    slow_receiver = bounds.all_reduce(fast)
    assert slow_receiver.rate == bound_of(hosts) == 1 and slow_receiver.proved(fast)
    hosts = [Rates(90, 9), Rates(90, 9), Rates(90, 9)]
    alike = one_switch({f"h{number}": each for number, each in enumerate(hosts)})
    found = bounds.all_reduce(alike)
    assert found.rate == Fraction(27, 4) and len(found.sides) == 3 and found.proved(alike)
