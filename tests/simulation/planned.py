"""All-reduces of given programs on a given network, in virtual time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dlcp_lab.simulation.burst_network import BurstNetwork
from dlcp_lab.simulation.cell import CHUNK, GRANT, PEER_TIMEOUT, SEGMENT
from dlcp_lab.simulation.egress import Wire
from dlcp_lab.simulation.fabric import LeafSpine
from dlcp_lab.simulation.reference import draw
from dlcp_lab.simulation.station import HostCost
from dlcp_lab.simulation.switch import SwitchRules
from dlcpd.schedules.model import Program
from dlcpd.schedules.network import Costs, Host, JobNetwork, Rack

BUFFER: Final = 1 << 20  # bytes of a port
REPEAT: Final = 3  # operations, of which the median counts: the first has no rates yet


@dataclass(frozen=True, slots=True)
class SimTimings:
    """Seconds without data."""

    round_trip: float
    gather: float  # until a wake-up takes arrivals in


def network_of(
    rates: Sequence[int],
    timings: SimTimings,
    *,
    per_rack: int = 0,
    uplink: int = 0,
    wake_up_ns: int = 0,
    datagram_ns: int = 0,
) -> JobNetwork:
    """Hosts with a rate each, on one switch or in racks of `per_rack` in sequence."""
    hosts = tuple(Host(f"h{host}", (rate,), (rate,)) for host, rate in enumerate(rates))
    racks = tuple(
        Rack(tuple(host.name for host in hosts[first : first + per_rack]), uplink, uplink)
        for first in (range(0, len(hosts), per_rack) if per_rack else ())
    )
    latency = round((timings.round_trip / 2 + timings.gather) * 1e9)
    return JobNetwork(hosts, racks, Costs(0, datagram_ns, wake_up_ns, latency), 1)


def time_of(
    network: JobNetwork, timings: SimTimings, programs: Sequence[Program], size: int
) -> float:
    """The median of REPEAT operations one after the other, in seconds."""
    world, delay, top = len(network.hosts), timings.round_trip / 4, max(network.rates)
    other: dict[str, Wire] = {}
    for host, rate in enumerate(network.rates):
        if rate != top:
            other |= {f"h{host}>": Wire(rate, delay), f">h{host}": Wire(rate, delay)}
    racks = network.racks
    plan = LeafSpine(
        world,
        Wire(top, delay),
        Wire(top, delay),
        per_leaf=len(racks[0].hosts) if racks else 0,
        spines=1 if racks else 0,
        between=Wire(racks[0].up_bps, delay / 4) if racks else None,
        rules=SwitchRules(BUFFER),
        other=other,
        seed=1,
    )
    costs = network.costs
    simulated = BurstNetwork(
        world,
        plan,
        train_time=8.5 * SEGMENT * 8 / top,
        cost=HostCost(costs.wake_up_ns / 1e9, costs.datagram_ns / 1e9, timings.gather),
        segment_size=SEGMENT,
        chunk_segments=CHUNK,
        grant=GRANT,
        peer_timeout=PEER_TIMEOUT,
        seed=1,
    )
    times = []
    for number in range(1, REPEAT + 1):
        begun = simulated.now
        for rank, part in enumerate(draw("float32", world, size // 4, number)):
            simulated.submit(rank, number, part, program=programs[rank], deadline=1000.0)
        simulated.complete(number)
        times.append(max(simulated.done_at[number].values()) - begun)
    return sorted(times)[REPEAT // 2]
