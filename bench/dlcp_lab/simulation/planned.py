"""Collectives of unequal hosts and racks in virtual time: the schedules of today, and planned ones.

Rank r is host r of a `JobNetwork`. Values are whole numbers, whose sums are exact in any order: all
results are compared bit by bit.
"""

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np

from dlcp_lab.simulation.burst_network import BurstNetwork
from dlcp_lab.simulation.cell import CHUNK, GRANT, PEER_TIMEOUT, SEGMENT
from dlcp_lab.simulation.fabric import of_network
from dlcp_lab.simulation.operation import DEADLINE, different, with_headers
from dlcp_lab.simulation.reference import Tensor, draw_whole
from dlcpd.schedules.catalog import Place, Task
from dlcpd.schedules.choose import choose
from dlcpd.schedules.model import Program
from dlcpd.schedules.network import JobNetwork
from dlcpd.schedules.shares import one_switch_bound

DIRECT, PLANNED = "direct", "planned"
ROOT: Final = 0  # of a broadcast
ITEM: Final = 4  # bytes of an element
TRAIN: Final = 4.5  # datagrams of a train on the slowest wire: half a millisecond at 100 Mb/s
SKEW: Final = 1e-3  # seconds within which all ranks begin, at random
RESOLUTION: Final = 1e-9  # seconds; sums of times are no more exact


@dataclass(frozen=True, slots=True)
class PlanCase:
    """A collective on a network. The result of `all_gather`, and the input of `reduce_scatter`,
    have `size` bytes; each rank owns an equal part."""

    network: JobNetwork
    collective: str
    size: int  # bytes

    @property
    def hosts(self) -> int:
        return len(self.network.hosts)

    @property
    def parts(self) -> tuple[int, ...]:
        """Bytes of each rank's part."""
        return (self.size // self.hosts,) * self.hosts

    @property
    def sizes(self) -> tuple[int, ...]:
        """The parts, where they are what ranks give or get."""
        return self.parts if self.collective in ("all_gather", "reduce_scatter") else ()

    @property
    def bound(self) -> float:
        """Seconds that no schedule undercuts, with the headers of all bytes."""
        rate = bound_bps(self.network, self.collective)
        return with_headers(self.size) * 8 / float(rate)

    @property
    def least_uplink_bytes(self) -> int:
        """The least that all uplinks together carry out of their racks, with headers: every byte
        crosses once less than there are racks, and as often again if it is also added."""
        crossings = len(self.network.groups) - 1
        return with_headers(self.size) * crossings * (1 + (self.collective == "all_reduce"))


@dataclass(frozen=True, slots=True)
class PlanTimes:
    """Operations of one case by one schedule, one after the other on one network."""

    times: list[float]  # virtual seconds from submission until all ranks have their results
    uplink_bytes: float  # out of all racks, per operation, with control and framing
    dropped: int  # datagrams without room
    wrong: int  # elements whose bits are not those of the reference
    cpu: float  # seconds of this process


def bound_bps(network: JobNetwork, collective: str) -> Fraction:
    """The rate that no schedule exceeds, from the cuts around hosts and around racks."""
    out, into, hosts = network.out_bps, network.in_bps, len(network.hosts)
    racks = [(len(rack.hosts), rack.up_bps, rack.down_bps) for rack in network.racks]
    cuts = [(1, *both) for both in zip(out, into, strict=True)] + racks
    if collective == "all_reduce":
        bound = one_switch_bound(out, into)
        up, down = [each[1] for each in racks], [each[2] for each in racks]
        return min(bound, one_switch_bound(up, down)) if len(racks) > 1 else bound
    if collective == "broadcast":
        one = [out[ROOT]] + [into[rank] for rank in range(hosts) if rank != ROOT]
        groups = zip(network.groups, racks, strict=False)  # without racks, there is one group
        one += [up if ROOT in group else down for group, (_, up, down) in groups]
        return min(Fraction(min(one)), Fraction(sum(out), hosts - 1))
    # Of n hosts, k send k/n of the result of all_gather and receive the rest; of what
    # reduce_scatter adds, they send the parts of the others and receive their own.
    gathers = collective == "all_gather"
    parts = [
        (up, k, down, hosts - k) if gathers else (up, hosts - k, down, k) for k, up, down in cuts
    ]
    return min(
        Fraction(rate * hosts, part)
        for up, sent, down, received in parts
        for rate, part in ((up, sent), (down, received))
        if part
    )


def programs(case: PlanCase, schedule: str) -> list[Program]:
    """The program of each rank, by the name of a schedule or PLANNED: what engines choose where
    the network is known."""
    network, wanted = (case.network, None) if schedule == PLANNED else (None, schedule)
    alone = tuple((rank,) for rank in range(case.hosts))
    task = Task(collective=case.collective, size=case.size, sizes=case.sizes, root=ROOT)
    places = [Place(rank, alone, CHUNK * SEGMENT, network) for rank in range(case.hosts)]
    return [choose(task, place, wanted).program for place in places]


def network_of(case: PlanCase, round_trip: float, buffer: int, seed: int) -> BurstNetwork:
    """The hosts of a case, a rank on each. See `of_network`."""
    plan = of_network(case.network, round_trip, buffer=buffer, seed=seed)
    slowest = min(wire.rate_bps for wire in plan.other.values())
    return BurstNetwork(
        case.hosts,
        plan,
        train_time=TRAIN * SEGMENT * 8 / slowest,
        segment_size=SEGMENT,
        chunk_segments=CHUNK,
        grant=GRANT,
        peer_timeout=PEER_TIMEOUT,
        seed=seed,
    )


def run(
    case: PlanCase, network: BurstNetwork, schedule: str, *, warmup: int, repeat: int
) -> PlanTimes:
    """The times of `repeat` operations by a schedule, after `warmup`. Raises: NotCompleted."""
    begun_cpu, of_ranks = time.process_time(), programs(case, schedule)
    times, wrong, before = list[float](), 0, 0.0
    for number in range(1, warmup + repeat + 1):
        if number == warmup + 1:
            before = _uplink_bytes(network)
        inputs, outputs, expected = _tensors(case, network.seed * 10_007 + number)
        begun = network.now
        for rank in _one_by_one(network, f"{network.seed} {number}"):
            network.submit(
                rank,
                number,
                inputs[rank],
                program=of_ranks[rank],
                output=outputs[rank],
                in_place=inputs[rank] is outputs[rank],
                terms=f"{case.collective} of float32[{case.size // ITEM}]",
                deadline=DEADLINE,
            )
        times.append(network.complete(number) - begun)
        wrong += sum(map(different, outputs, expected))
    used, cpu = _uplink_bytes(network) - before, time.process_time() - begun_cpu
    return PlanTimes(times[warmup:], used / repeat, network.fabric.dropped, wrong, cpu)


def _one_by_one(network: BurstNetwork, seed: str) -> Iterator[int]:
    """All ranks, each at the time at which it begins."""
    chance, begun = random.Random(seed), network.now  # not for security
    ranks = range(network.world_size)
    for at, rank in sorted((begun + chance.uniform(0.0, SKEW), rank) for rank in ranks):
        network.calendar.add(at, _nothing)
        network.run(at - network.now + RESOLUTION)
        yield rank


def _nothing(_: object) -> None:
    """An event that only lets time pass."""


def _uplink_bytes(network: BurstNetwork) -> float:
    """Sent out of all racks so far."""
    ports = network.fabric.ports.items()
    return sum(port.sent_bytes for name, port in ports if name.startswith("l"))


def _tensors(case: PlanCase, seed: int) -> tuple[Sequence[Tensor], ...]:
    """INPUT and OUTPUT of each rank, and its right result."""
    ranks, part = range(case.hosts), case.parts[0] // ITEM
    whole = draw_whole(case.hosts, case.size // ITEM, seed)
    total: Any = sum(whole)
    inputs = whole
    match case.collective:
        case "all_reduce":
            return whole, whole, [total] * case.hosts
        case "all_gather":
            inputs = [whole[rank][:part].copy() for rank in ranks]
            expected = [np.concatenate(inputs)] * case.hosts
        case "reduce_scatter":
            expected = [total[rank * part : (rank + 1) * part] for rank in ranks]
        case _:
            expected = [whole[ROOT]] * case.hosts
    return inputs, [np.zeros_like(each) for each in expected], expected
