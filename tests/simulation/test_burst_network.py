"""The core on a simulated fabric: results bit by bit, and times in both forms of the simulation."""

from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest

from dlcp_lab.simulation.burst_network import BurstNetwork, NotCompleted
from dlcp_lab.simulation.egress import Wire
from dlcp_lab.simulation.fabric import LeafSpine, Spines, star
from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcp_lab.simulation.reference import draw, draw_whole, rank_ordered
from dlcp_lab.simulation.station import HostCost
from dlcp_lab.simulation.switch import SwitchRules
from dlcp_lab.simulation.train import FRAMING
from dlcpd.collectives.order import Group
from dlcpd.core.wire.header import HEADER_SIZE
from tests.simulation.agreement import agree

SEGMENT = 1408
GBPS = 1e9


def network(plan: LeafSpine, *, world_size: int = 0, **options: Any) -> BurstNetwork:
    return BurstNetwork(
        world_size or plan.hosts,
        plan,
        **{"segment_size": SEGMENT, "chunk_segments": 745, "grant": 32 << 20} | options,
    )


def times(net: BurstNetwork, operations: int, size: int) -> list[float]:
    """Seconds of each exact all-reduce, whose results are those of the reference."""
    taken = []
    for number in range(1, operations + 1):
        parts = draw("float32", net.world_size, size // 4, number)
        right = rank_ordered(parts, "float32", "sum")
        begun = net.now
        net.submit_all(number, parts)
        taken.append(net.complete(number) - begun)
        assert all((part == right).all() for part in parts)
    return taken


PLANS = {
    "bursts of loss": star(4, GBPS, 1e-3, loss=0.03, burst=8, seed=5),
    "one leaf per host, one queue": LeafSpine(
        4, Wire(GBPS, 1e-5), Wire(GBPS, 1e-5, 0.01), 1, 2, Wire(GBPS, 1e-5)
    ),
    "everything": LeafSpine(
        6,
        Wire(GBPS, 1e-5),
        Wire(GBPS, 1e-5, 0.01),
        2,
        2,
        Wire(GBPS / 2, 1e-5),
        SwitchRules(25_000, 200_000, 1.0, True, True, 15_000, True),
        Spines.SPRAY,
        {"h0>": Wire(GBPS / 4, 1e-4)},
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_results_are_right_bit_by_bit(name: str) -> None:
    net = network(PLANS[name], cost=HostCost(10e-6, 1e-6), paths=2)
    times(net, 3, 100_000)
    assert net.fabric.lost > 0
    counts = [port.sent for port in net.fabric.ports.values()]
    assert sum(counts) > 1.9 * net.carried > 0
    if name == "everything":
        marked = sum(port.marked for port in net.fabric.ports.values())
        trimmed = sum(station.trimmed for station in net.stations)
        assert marked > 0 and net.fabric.dropped > 0 and trimmed > 0


def test_ranks_of_a_bounded_operation_hold_the_same_bits() -> None:
    net = network(star(3, GBPS, 10e-3, loss=0.05))
    for number in range(1, 5):
        parts = draw_whole(3, 50_000, number)
        net.submit_all(number, parts, max_loss=0.1, name="weight")
        net.complete(number)
        assert all((part == parts[0]).all() for part in parts)


def test_the_same_seed_gives_the_same_run() -> None:
    plan = PLANS["everything"]

    def run(seed: int) -> tuple[list[float], int, int]:
        net = network(replace(plan, seed=seed))
        return times(net, 2, 100_000), net.carried, net.calendar.handled

    assert run(1) == run(1) != run(2)


def test_only_ranks_that_take_part_are_waited_for() -> None:
    net = network(star(3, GBPS, 1e-3))
    parts = draw("float32", 2, 100, 1)
    for rank, part in enumerate(parts):
        net.submit(rank, 1, part, group=Group(1, (0, 1), rank, "two"))
    net.complete(1, ranks=2)
    assert set(net.done_at[1]) == {0, 1} and (parts[0] == parts[1]).all()


def test_an_operation_that_cannot_end_is_an_error() -> None:
    net = network(star(2, GBPS, 1e-3))
    net.submit(0, 1, draw("float32", 2, 100, 1)[0])
    with pytest.raises(NotCompleted, match="operation 1 ended on 0 ranks in 2 s"):
        net.complete(1, until=2.0)
    net.submit(0, 2, draw("float32", 2, 100, 1)[0], deadline=3.0)
    with pytest.raises(NotCompleted, match="rank 0: "):
        net.complete(2)


def test_a_plan_for_other_hosts_is_refused() -> None:
    with pytest.raises(ValueError, match="2 hosts, 3 in the plan"):
        BurstNetwork(2, star(3, GBPS, 1e-3))


def test_ranks_of_a_host_share_its_wire() -> None:
    net = network(star(2, GBPS, 1e-4), world_size=4, hosts=((0, 1), (2, 3)))
    times(net, 2, 200_000)
    assert net.stations[0].endpoint is net.endpoints[1]
    alone = network(star(4, GBPS, 1e-4))
    times(alone, 2, 200_000)
    assert net.carried < 0.8 * alone.carried


def test_a_slow_cpu_and_a_small_receive_buffer_take_their_time() -> None:
    plan = star(3, GBPS, 1e-4)
    free = times(network(plan), 2, 300_000)[-1]
    slow = times(network(plan, cost=HostCost(20e-6, 20e-6)), 2, 300_000)[-1]
    assert slow > 1.5 * free
    steps = times(network(plan, cost=HostCost(transfer=400e-6)), 2, 300_000)[-1]
    assert steps > free + 4 * 400e-6  # of each rank: 2 transfers to it, 2 from it
    net = network(plan, cost=HostCost(20e-6, 20e-6, receive_buffer=50_000))
    times(net, 2, 300_000)
    assert sum(station.overflowed for station in net.stations) > 0


# --- against one event per datagram ---------------------------------------------------------

# Rate, round trip, loss, bytes, operations.
CELLS = [
    (1e9, 1e-4, 0.0, 1 << 18, 20),
    (1e9, 10e-3, 0.0, 1 << 18, 10),
    (1e8, 10e-3, 0.0, 1 << 17, 8),
    pytest.param(1e9, 1e-3, 0.01, 1 << 18, 24, marks=pytest.mark.heavy),
    pytest.param(1e9, 10e-3, 0.01, 1 << 18, 24, marks=pytest.mark.heavy),
    pytest.param(1e8, 10e-3, 0.01, 1 << 17, 20, marks=pytest.mark.heavy),
]


@pytest.mark.parametrize(("rate", "round_trip", "loss", "size", "operations"), CELLS)
def test_trains_take_the_time_of_single_datagrams(
    rate: float, round_trip: float, loss: float, size: int, operations: int
) -> None:
    plan = star(2, rate, round_trip, loss=loss, seed=3)
    each, train_time = (HEADER_SIZE + SEGMENT) * 8 / rate, 50e-6 * GBPS / rate
    single = network(plan, train_time=0.0)
    trains = network(plan, train_time=train_time)
    assert train_time > 3 * each
    agree(times(single, operations, size)[2:], times(trains, operations, size)[2:])


@pytest.mark.parametrize("round_trip", [1e-3, 10e-3])
def test_the_network_of_single_datagrams_takes_the_same_time(round_trip: float) -> None:
    """`SimNetwork` has no wire from a host to the switch: that of the plan is very fast."""
    size, operations = 1 << 18, 6
    link = SimLink(
        delay=round_trip / 2, rate=GBPS / 8 / (HEADER_SIZE + SEGMENT + FRAMING), queue=1000
    )
    other = SimNetwork(2, link, segment_size=SEGMENT, chunk_segments=745, grant=32 << 20, seed=1)
    expected = []
    for number in range(1, operations + 1):
        begun = other.now
        other.submit_all(number, draw("float32", 2, size // 4, number))
        other.run(enough=lambda number=number: other.ended(number))  # type: ignore[misc]  # bound
        expected.append(other.now - begun)
    plan = LeafSpine(
        2,
        Wire(1e13, round_trip / 4),
        Wire(GBPS, round_trip / 4),
        rules=SwitchRules(1000 * (HEADER_SIZE + SEGMENT + FRAMING)),
    )
    got = times(network(plan, train_time=0.0, cost=HostCost(gather=0.0)), operations, size)
    assert fmean(got[2:]) == pytest.approx(fmean(expected[2:]), rel=0.02)
