"""The probe: order of its rounds, rates from their bytes, racks from routers or rates."""

import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.planning.graph import Rates
from dlcpd.planning.probe import ProbedLinks, probe
from dlcpd.planning.probe_racks import FoundRacks, by_routers, placed, placing_rounds
from dlcpd.planning.probe_rates import RoundRates, capacities, probed
from dlcpd.planning.probe_rounds import MOST_AGAIN, SECONDS, Pairs, again, rounds
from dlcpd.schedules.network import HostCapacity, job_network
from tests.planning.true_network import NOISE, TrueNetwork, random_network

SEEDS = range(10)


@st.composite
def some_racks(draw: st.DrawFn) -> list[list[int]]:
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=6))
    order = iter(draw(st.permutations(range(sum(sizes)))))
    return [[next(order) for _ in range(size)] for size in sizes]


def _is_a_round(pairs: Pairs) -> None:
    """Every host sends to at most one and receives from at most one, never itself."""
    assert pairs and all(a != b for a, b in pairs)
    for ends in zip(*pairs, strict=True):
        assert max(Counter(ends).values()) == 1


@given(some_racks())
def test_rounds_load_hosts_once_and_one_pair_of_racks(racks: list[list[int]]) -> None:
    rack_of = {host: number for number, members in enumerate(racks) for host in members}
    found = list(rounds(racks))
    for pairs in found:
        _is_a_round(pairs)
        crossed = {frozenset((rack_of[a], rack_of[b])) for a, b in pairs}
        inside = all(len(each) == 1 for each in crossed)
        assert inside or len(crossed) == 1
    used = {host for pairs in found for pair in pairs for host in pair}
    assert used == (set(rack_of) if len(rack_of) > 1 else set()) or len(racks) > 1
    assert len(set(found)) == len(found) <= 2 + 2 * len(racks)
    for number, members in enumerate(racks):
        assert len(racks) == 1 or any(
            rack_of[p[0][0]] == number or rack_of[p[0][1]] == number for p in found
        ), members


def test_sixteen_hosts_are_probed_within_ten_seconds() -> None:
    for racks in ([[n] for n in range(16)], [list(range(16))], [[n, n + 8] for n in range(8)]):
        assert (len(list(rounds(racks))) + MOST_AGAIN) * SECONDS < 10


def _run(first: list[list[str]], rates: Callable[[Pairs], RoundRates]) -> ProbedLinks:
    """A whole probe. `first`: by host, the routers that answered."""
    running, rounds_ = probe(first), 0
    answer: RoundRates | None = None
    while True:
        try:
            pairs = next(running) if answer is None else running.send(answer)
        except StopIteration as over:
            assert rounds_ * SECONDS < 10
            found: ProbedLinks = over.value
            return found
        _is_a_round(pairs)
        rounds_, answer = rounds_ + 1, rates(pairs)


def _probe(truth: TrueNetwork, seed: int) -> ProbedLinks:
    draw = random.Random(seed)
    routers = [[f"r{truth.rack(host)}"] for host in range(len(truth.hosts))]
    return _run(routers, lambda pairs: truth.measured(pairs, draw))


@pytest.mark.parametrize("seed", SEEDS)
def test_racks_and_rates_are_within_15_percent_of_the_truth(seed: int) -> None:
    truth = random_network(seed)
    found = _probe(truth, seed)
    assert found.racks == tuple(sorted(truth.racks))
    for host, rates in enumerate(truth.hosts):
        assert found.rates.hosts[host].send == pytest.approx(rates.send, rel=0.15)
        assert found.rates.hosts[host].receive == pytest.approx(rates.receive, rel=0.15)
    for members, said in zip(found.racks, found.rates.uplinks, strict=True):
        number = truth.racks.index(members)
        for way in (0, 1):
            assert said[way] <= truth.uplinks[number][way] * 1.15
            assert said[way] >= _visible(truth, number, way) * 0.85


def _visible(truth: TrueNetwork, rack: int, way: int) -> float:
    """What a pair of racks can carry over an uplink: hosts and the other uplink limit it too."""
    most = 0.0
    for pairs in rounds(truth.racks):
        ends = {truth.rack(pair[way]) for pair in pairs}
        if rack in ends and len({truth.rack(host) for host in pairs[0]}) == 2:
            flows = [pair for pair in pairs if truth.rack(pair[way]) == rack]
            other = truth.rack(flows[0][1 - way])
            through = sum(min(truth.hosts[a].send, truth.hosts[b].receive) for a, b in flows)
            most = max(most, min(through, truth.uplinks[rack][way], truth.uplinks[other][1 - way]))
    return most


@given(st.integers(0, 10**6))
def test_no_rate_is_above_the_truth_by_more_than_the_noise(seed: int) -> None:
    truth = random_network(seed)
    probed_ = _probe(truth, seed)
    found = probed_.rates
    uplinks = [truth.uplinks[truth.racks.index(members)] for members in probed_.racks]
    for said, true in zip((*found.hosts, *found.uplinks), (*truth.hosts, *uplinks), strict=True):
        for each, most in zip(said, true, strict=True):
            assert 0 < each <= most * (1 + NOISE) + len(truth.hosts)


def test_a_fast_host_between_slow_ones_gets_a_fast_partner() -> None:
    fast, slow = Rates(400, 400), Rates(100, 100)
    found = {0: slow, 1: slow, 2: slow, 3: fast, 4: fast}
    met = [tuple((h, (h + s) % 5) for h in range(5)) for s in (1, 2)]
    pairs = again([range(5)], found, met)
    _is_a_round(pairs)
    assert {a for a, _ in pairs if found[a] is slow} and not set(pairs) & set(met[0] + met[1])


def test_equal_hosts_need_no_more_rounds() -> None:
    assert again([range(5)], dict.fromkeys(range(5), Rates(10, 11)), []) == ()


def test_hosts_are_told_as_a_network_of_the_job() -> None:
    found = probed([[0], [1]], [{(0, 1): 1234, (1, 0): 4321}])
    told = capacities([[0], [1]], found)
    assert told == [
        HostCapacity((1234,), (4321,), "rack 0", 1234, 4321),
        HostCapacity((4321,), (1234,), "rack 1", 4321, 1234),
    ]
    made = job_network(list(zip("ab", told, strict=True)))
    assert made is not None and made.capacities == made.of(["a", "b"]).capacities
    assert capacities([[0, 1]], found)[0] == HostCapacity((1234,), (4321,))


def test_a_host_without_bytes_is_named() -> None:
    assert probed([[0, 1, 2]], [{(0, 1): 10, (1, 0): 10}]).unseen == (2,)


@pytest.mark.parametrize("hosts", [0, 1, 2])
def test_few_hosts(hosts: int) -> None:
    """One host has nothing to measure; two are each other's limit."""
    met = list[Pairs]()

    def rates(pairs: Pairs) -> RoundRates:
        met.append(pairs)
        return dict.fromkeys(pairs, 100)

    found = _run([[]] * hosts, rates)
    assert met == ([((0, 1), (1, 0))] if hosts == 2 else [])
    assert found.rates.unseen == ((0,) if hosts == 1 else ())


@pytest.mark.parametrize("seed", SEEDS)
def test_racks_are_right_from_partial_answers(seed: int) -> None:
    """Two rails, each with its own switch in a rack; a host hears at least one of them."""
    truth, draw = random_network(seed), random.Random(seed)
    first: list[list[str]] = []
    for host in range(len(truth.hosts)):
        rack = truth.rack(host)
        both = [f"10.{rail}.{rack}.1" for rail in range(2)]
        heard = draw.sample(both, draw.randint(1, 2))
        first.append(both if host == truth.racks[rack][0] else heard)
    found = by_routers(first)
    assert found.racks == tuple(sorted(truth.racks)) and found.silent == ()
    assert found.reason.startswith(f"{len(truth.racks)}: hosts of a rack have a first router")


@pytest.mark.parametrize("seed", SEEDS)
def test_silent_hosts_are_placed_by_rate(seed: int) -> None:
    truth, draw = random_network(seed), random.Random(seed)
    fast = Rates(10**9, 10**9)
    racks = tuple(sorted(truth.racks))
    uplinks = (Rates(10**9, 10**9),) * len(racks)
    truth = TrueNetwork(racks, (fast,) * len(truth.hosts), uplinks)
    hidden = [members[-1] for members in racks[:2]]
    found = by_routers(
        [[] if host in hidden else [f"r{truth.rack(host)}"] for host in range(len(truth.hosts))]
    )
    assert set(found.silent) == set(hidden)
    rates = {}
    for host, rack, pairs in placing_rounds(found):
        _is_a_round(pairs)
        rates[host, rack] = truth.measured(pairs, draw)[pairs[0]]
    done = placed(found, rates)
    assert done.racks == racks and done.silent == ()
    assert done.reason.endswith("; 2 without one placed by rate")


def test_without_answers_there_is_one_rack_and_a_reason() -> None:
    found = by_routers([[], [], []])
    assert found == FoundRacks(((0, 1, 2),), (), "no router answered: one rack is assumed")
    assert by_routers([]).racks == ()


def test_hosts_that_are_as_fast_to_all_racks_go_to_the_first() -> None:
    found = placed(by_routers([["a"], ["b"], []]), {(2, 0): 100, (2, 1): 110})
    assert found.racks == ((0, 2), (1,))
    assert found.reason.endswith("1 without one, and as fast to all racks, put into the first")


def test_a_host_with_routers_of_two_sets_joins_them() -> None:
    found = by_routers([["a"], ["b"], ["c"], ["b", "a"], ["b"]])
    assert found.racks == ((0, 1, 3, 4), (2,))
    assert by_routers([["a"], ["a", "b"]]).reason.startswith("one: all hosts")


@pytest.mark.parametrize(("inside", "across"), [(0, 1), (0, 3), (1, 3)])
@pytest.mark.parametrize("seed", SEEDS)
def test_racks_are_right_where_a_switch_has_an_address_for_each_host(
    seed: int, inside: int, across: int
) -> None:
    truth = random_network(seed)
    hosts = range(len(truth.hosts))
    between = {
        (a, b): inside if truth.rack(a) == truth.rack(b) else across
        for a in hosts
        for b in hosts
        if a != b
    }
    assert by_routers([[f"10.0.{host}.1"] for host in hosts], between).racks == tuple(
        sorted(truth.racks)
    )


def test_a_router_that_answers_one_way_only_is_between_both() -> None:
    between = {(0, 1): 0, (1, 0): 3, (0, 2): 1, (2, 0): 0, (1, 2): 3, (2, 1): 1}
    assert by_routers([["a"], ["b"], ["c"]], between).racks == ((0, 2), (1,))


def test_hosts_with_two_switches_between_each_other_are_apart() -> None:
    """And nothing is known of one that no router answered, whose paths seem to have none."""
    between = {(a, b): 3 if 2 not in (a, b) else 0 for a in range(3) for b in range(3) if a != b}
    found = by_routers([["a"], ["b"], []], between)
    assert found.racks == ((0,), (1,)) and found.silent == (2,)


def test_too_many_silent_hosts_cost_no_rounds() -> None:
    found = by_routers([["a"], ["b"], *([[]] * 6)])
    assert list(placing_rounds(found)) == []
    assert placed(found, {}).racks == ((0, 2, 3, 4, 5, 6, 7), (1,))
