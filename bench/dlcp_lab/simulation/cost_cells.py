"""Networks and sizes on which the cost model is compared with the simulated core; none of them was
used to fit it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, NamedTuple

from dlcp_lab.simulation.burst_network import BurstNetwork
from dlcp_lab.simulation.cell import CHUNK, GRANT, PEER_TIMEOUT, SEGMENT
from dlcp_lab.simulation.egress import Wire
from dlcp_lab.simulation.fabric import LeafSpine
from dlcp_lab.simulation.reference import draw
from dlcp_lab.simulation.station import HostCost
from dlcp_lab.simulation.switch import SwitchRules
from dlcpd.planning.choice import Programs, candidates, choose
from dlcpd.planning.cost import predict
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
        cost=HostCost(
            costs.wake_up_ns / 1e9,
            costs.datagram_ns / 1e9,
            costs.transfer_ns / 1e9,
            gather=timings.gather,
        ),
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


M: Final = 10**6
SLOW: Final = SimTimings(200e-6, 20e-6)
FAST: Final = SimTimings(20e-6, 5e-6)
CPU: Final = {"wake_up_ns": 10_000, "datagram_ns": 800}
COMPARED: Final = ("direct", "one_shot", "star 64", "star 256", "racks 64", "racks 256")


class CostCell(NamedTuple):
    """An all-reduce of `size` bytes on a network."""

    network: JobNetwork
    timings: SimTimings
    size: int


CELLS: Final = {
    "3 x 150": CostCell(network_of([150 * M] * 3, SLOW), SLOW, 600 << 10),
    "6 x 500": CostCell(network_of([500 * M] * 6, SLOW), SLOW, 640 << 10),
    "40, 4 x 120": CostCell(network_of([40 * M, *[120 * M] * 4], SLOW), SLOW, 640 << 10),
    "120, 5 x 250": CostCell(network_of([120 * M, *[250 * M] * 5], SLOW), SLOW, 896 << 10),
    "2 racks of 2": CostCell(
        network_of([300 * M] * 4, SLOW, per_rack=2, uplink=120 * M), SLOW, 896 << 10
    ),
    "3 racks of 2": CostCell(
        network_of([250 * M] * 6, SLOW, per_rack=2, uplink=150 * M), SLOW, 640 << 10
    ),
    "small, 5 x 600": CostCell(network_of([600 * M] * 5, SLOW), SLOW, 12 << 10),
    "small, 4 x 25,000, CPU": CostCell(network_of([25_000 * M] * 4, FAST, **CPU), FAST, 24 << 10),
    "5 x 10,000, CPU": CostCell(network_of([10_000 * M] * 5, FAST, **CPU), FAST, 1 << 20),
    "3000, 4 x 10,000": CostCell(network_of([3000 * M, *[10_000 * M] * 4], FAST), FAST, 1536 << 10),
}


@dataclass(frozen=True, slots=True)
class CostRow:
    """A schedule on a cell: seconds by the model, and of the simulated core."""

    cell: str
    schedule: str
    predicted: float
    simulated: float
    chosen: bool  # by the model, among the schedules of the cell

    @property
    def ratio(self) -> float:
        return self.predicted / self.simulated


def schedules(name: str) -> dict[str, Programs]:
    """The schedules to compare on a cell, with the programs of all ranks."""
    cell = CELLS[name]
    made = candidates(cell.network, cell.size)
    return {schedule: made[schedule] for schedule in COMPARED if schedule in made}


@cache
def simulated(name: str, schedule: str, costs: Costs | None = None) -> float:
    """Seconds, the median of REPEAT operations."""
    cell = CELLS[name]
    of_ranks = schedules(name)[schedule]
    return time_of(_network(cell, costs), cell.timings, of_ranks, cell.size)


def rows_of(name: str, costs: Costs | None = None) -> Iterator[CostRow]:
    """The rows of a cell. `costs`: CPU time in the place of that of the cell."""
    made, network = schedules(name), _network(CELLS[name], costs)
    chosen = choose(made, network).name
    for schedule, of_ranks in made.items():
        predicted = predict(of_ranks, network).seconds
        time = simulated(name, schedule, costs)
        yield CostRow(name, schedule, predicted, time, schedule == chosen)


def _network(cell: CostCell, costs: Costs | None) -> JobNetwork:
    if costs is None:
        return cell.network
    here = costs._replace(latency_ns=cell.network.costs.latency_ns)
    return replace(cell.network, costs=here)


def behind(rows: Sequence[CostRow]) -> float:
    """The time of a cell's chosen schedule in units of that of its best one."""
    [chosen] = [row.simulated for row in rows if row.chosen]
    return chosen / min(row.simulated for row in rows)
