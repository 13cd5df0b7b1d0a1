"""Hosts of unequal rates, and in racks: ports, bounds, and the results of each schedule."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcp_lab.simulation import planned
from dlcp_lab.simulation.fabric import LeafSpine, of_network
from dlcp_lab.simulation.operation import different
from dlcp_lab.simulation.planned import (
    DIRECT,
    PLANNED,
    PlanCase,
    bound_bps,
    network_of,
    programs,
    run,
)
from dlcp_lab.simulation.reference import Tensor
from dlcpd.planning import bounds
from dlcpd.planning.graph import DirectedLink, Graph
from dlcpd.schedules.network import Costs, Host, JobNetwork, Rack
from tests.simulation.trains import SIZE, Ports, train

MBPS = 1_000_000


def job(
    out: list[int],
    into: list[int] | None = None,
    racks: tuple[tuple[int, ...], ...] = (),
    up: int = 0,
) -> JobNetwork:
    """Hosts with rates in Mb/s; ranks of each rack, with uplinks of `up` Mb/s."""
    pairs = zip(out, into or out, strict=True)
    hosts = tuple(Host(f"h{i}", (a * MBPS,), (b * MBPS,)) for i, (a, b) in enumerate(pairs))
    return JobNetwork(
        hosts,
        tuple(Rack(tuple(f"h{i}" for i in rack), up * MBPS, up * MBPS) for rack in racks),
        Costs(0, 0, 0, 0),
        1,
    )


def measured(case: PlanCase, schedule: str) -> planned.PlanTimes:
    return run(case, network_of(case, 200e-6, 256 << 10, 1), schedule, warmup=1, repeat=1)


# --- ports ----------------------------------------------------------------------------------


def test_hosts_and_uplinks_have_rates_of_their_own() -> None:
    """Racks of three and one, hosts in any order; each wire takes its time."""
    network = job([8, 16, 24, 32], [10, 20, 30, 40], ((0, 2, 3), (1,)), 4)
    plan = of_network(network, 0.0, buffer=1 << 30)
    assert plan.placed == (0, 1, 0, 0) and plan.leaves == 2
    ports = Ports(plan)
    ports.send(train(0, 1, 1))
    ports.send(train(2, 3, 1))
    ports.run()
    each = SIZE * 8 / MBPS
    across = each * (1 / 8 + 1 / 4 + 1 / 4 + 1 / 20)
    assert ports.arrived[-1][0] == pytest.approx(across)
    assert ports.arrived[0][0] == pytest.approx(each * (1 / 24 + 1 / 40))
    sent = {name: port.sent_bytes for name, port in ports.fabric.ports.items() if port.sent}
    assert sent == dict.fromkeys(("h0>", "l0>s0", "s0>l1", ">h1", "h2>", ">h3"), SIZE)


def test_two_hosts_of_two_racks_are_a_round_trip_apart() -> None:
    ports = Ports(of_network(job([100_000] * 2, None, ((0,), (1,)), 100_000), 0.4))
    ports.send(train(0, 1, 1))
    ports.run()
    assert ports.arrived[0][0] == pytest.approx(0.2, rel=1e-4)


def test_as_many_hosts_are_placed_as_there_are() -> None:
    star = of_network(job([1, 1]), 0.0)
    with pytest.raises(ValueError, match="3 hosts are placed, of 2"):
        LeafSpine(2, star.up, star.down, placed=(0, 0, 0))


# --- bounds ---------------------------------------------------------------------------------


def graph(network: JobNetwork) -> Graph:
    """The network for `bounds`: a switch per rack, and one above them."""
    hosts, groups = len(network.hosts), network.groups
    above = hosts + len(groups)
    links = []
    for number, group in enumerate(groups):
        for host in group:
            links.append(DirectedLink(host, hosts + number, network.out_bps[host]))
            links.append(DirectedLink(hosts + number, host, network.in_bps[host]))
    for number, rack in enumerate(network.racks):
        links.append(DirectedLink(hosts + number, above, rack.up_bps))
        links.append(DirectedLink(above, hosts + number, rack.down_bps))
    names = tuple(host.name for host in network.hosts)
    switches = tuple(f"s{number}" for number in range(len(groups) + bool(network.racks)))
    return Graph(names, switches, tuple(sorted(links)))


RATES = st.lists(st.integers(1, 40), min_size=2, max_size=6)


@settings(max_examples=60)
@given(out=RATES, into=RATES, up=st.integers(1, 40), flat=st.booleans())
def test_bounds_are_those_of_all_cuts(out: list[int], into: list[int], up: int, flat: bool) -> None:
    hosts = min(len(out), len(into))
    out, into = out[:hosts], into[:hosts]
    racks = () if flat else (tuple(range(0, hosts, 2)), tuple(range(1, hosts, 2)))
    network = job(out, into, racks, up)
    made = graph(network)
    assert bound_bps(network, "all_gather") == bounds.all_gather(made).rate
    assert bound_bps(network, "reduce_scatter") == bounds.all_gather(made.backwards()).rate
    assert bound_bps(network, "all_reduce") >= bounds.all_reduce(made).rate
    cut = bounds.broadcast(made, 0).rate
    assert min(cut, sum(network.out_bps) / (hosts - 1)) == bound_bps(network, "broadcast")


# --- schedules ------------------------------------------------------------------------------

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")


@settings(max_examples=12)
@given(
    collective=st.sampled_from(COLLECTIVES),
    rates=st.lists(st.sampled_from([50, 100, 400]), min_size=3, max_size=5),
    shape=st.sampled_from(["flat", "interleaved", "grouped"]),
    elements=st.integers(1, 2000),
)
def test_results_are_right_and_no_schedule_is_faster_than_the_bound(
    collective: str, rates: list[int], shape: str, elements: int
) -> None:
    hosts = len(rates)
    ranks = tuple(range(hosts))
    racks = {
        "flat": (),
        "interleaved": (ranks[::2], ranks[1::2]),
        "grouped": (ranks[:1], ranks[1:]),
    }
    # Only equal hosts own equal parts: those of the user's ranks.
    rates = rates if collective in ("all_reduce", "broadcast") else [100] * hosts
    case = PlanCase(job(rates, None, racks[shape], 60), collective, 4 * elements * hosts)
    for schedule in (DIRECT, PLANNED):
        made = measured(case, schedule)
        assert not made.wrong
        assert min(made.times) >= case.bound
        assert made.uplink_bytes >= case.least_uplink_bytes * (len(case.network.racks) > 0)


def test_each_element_with_a_wrong_bit_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def off(result: Tensor, expected: Tensor) -> int:
        spoiled = expected.copy()
        spoiled.view(np.uint32)[[0, 7]] ^= 1  # the last bit of the fraction
        return different(result, spoiled)

    monkeypatch.setattr(planned, "different", off)
    case = PlanCase(job([100] * 3), "all_reduce", 1200)
    assert measured(case, DIRECT).wrong == 2 * 3 * 2, "on three ranks, in two operations"


def test_a_slow_host_owns_less_and_is_no_longer_the_limit() -> None:
    case = PlanCase(job([25, 100, 100, 100]), "all_reduce", 1 << 20)
    times = {each: min(measured(case, each).times) for each in ("ring", DIRECT, PLANNED)}
    assert times[PLANNED] < times["ring"] / 1.2 < times[DIRECT]


def test_racks_cross_an_uplink_once_per_direction() -> None:
    case = PlanCase(job([100] * 4, None, ((0, 2), (1, 3)), 50), "all_reduce", 1 << 20)
    made = {each: measured(case, each) for each in (DIRECT, PLANNED)}
    assert made[PLANNED].uplink_bytes < 1.1 * case.least_uplink_bytes
    assert made[DIRECT].uplink_bytes > 1.9 * case.least_uplink_bytes
    assert made[PLANNED].times[0] < made[DIRECT].times[0] / 1.6


@pytest.mark.parametrize("collective", ["reduce_scatter", "all_gather"])
def test_datagrams_of_a_slow_uplink_are_not_answered_one_by_one(collective: str) -> None:
    """They come 4 ms apart, later than an answer that waits for the least time."""
    case = PlanCase(job([25] * 4, None, ((0, 2), (1, 3)), 12), collective, 1 << 20)
    made = run(case, network_of(case, 200e-6, 256 << 10, 1), PLANNED, warmup=1, repeat=3)
    assert made.uplink_bytes < 1.03 * case.least_uplink_bytes


@pytest.mark.parametrize("collective", ["all_reduce", "reduce_scatter", "all_gather"])
def test_equal_hosts_keep_the_program_of_today(collective: str) -> None:
    case = PlanCase(job([100] * 4), collective, 1 << 20)
    assert programs(case, DIRECT) == programs(case, PLANNED)
