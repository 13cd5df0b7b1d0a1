"""An operation of many simulated hosts: its time, the limit of its bytes, what simulating it takes.

Each draws its own data, reduces it in place, and compares the results bit by bit.
"""

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dlcp_lab.simulation.burst_network import BurstNetwork
from dlcp_lab.simulation.cell import CHUNK, GRANT, PEER_TIMEOUT, SEGMENT
from dlcp_lab.simulation.fabric import star
from dlcp_lab.simulation.reference import Tensor, draw, rank_ordered
from dlcp_lab.simulation.station import HostCost
from dlcp_lab.simulation.switch import SwitchRules
from dlcp_lab.simulation.train import FRAMING
from dlcpd.collectives.order import Group
from dlcpd.core.wire.header import HEADER_SIZE
from dlcpd.schedules.builders.reduce import direct
from dlcpd.schedules.model import Program, Send

AROUND: Final = HEADER_SIZE + FRAMING  # bytes on the wire around a segment
TRAIN: Final = 7.0  # datagrams of a train: the times of single ones within 2 %, as a test checks
DEADLINE: Final = 1000.0  # seconds
ROOT: Final = 0  # the rank to which the others send in an incast
SENDERS: Final = 1  # number of their group


@dataclass(frozen=True, slots=True)
class SimHardware:
    """Hosts at one switch, and engines that take no CPU time."""

    hosts: int
    rate_bps: float  # of each wire
    round_trip: float  # seconds, without data
    wake_up: float  # seconds from a first arrival to the wake-up of its engine
    buffer: int = 1 << 20  # bytes that may wait at a port of the switch
    seed: int = 1


@dataclass(frozen=True, slots=True)
class SimOperation:
    """One operation. Times are virtual seconds from its submission."""

    collective: str
    size: int  # bytes of the tensor of a rank
    ranks: int  # that take part
    time: float  # until all ranks that get a result have it
    ended: float  # until all ranks know that others have what they sent; no less than `time`
    limit: float  # see `limit`
    dropped: int  # datagrams that found a queue or a receive buffer full
    events: int
    datagrams: int  # sent
    cpu: float  # seconds of this process
    wrong: int  # elements whose bits are not those of the reference, all ranks together

    @property
    def share(self) -> float:
        """The part of the limit that it reaches: 1 is as fast as the wires."""
        return self.limit / self.time

    @property
    def events_per_second(self) -> float:
        """Events per second of CPU time."""
        return self.events / self.cpu


def network_of(hardware: SimHardware, *, train: float = TRAIN) -> BurstNetwork:
    """Its hosts, a rank on each. `train`: datagrams that an event may move."""
    rate = hardware.rate_bps
    plan = star(hardware.hosts, rate, hardware.round_trip, seed=hardware.seed)
    return BurstNetwork(
        hardware.hosts,
        replace(plan, rules=SwitchRules(hardware.buffer)),
        train_time=train * SEGMENT * 8 / rate,
        cost=HostCost(gather=hardware.wake_up),
        segment_size=SEGMENT,
        chunk_segments=CHUNK,
        grant=GRANT,
        peer_timeout=PEER_TIMEOUT,
        seed=hardware.seed,
    )


def all_reduce(network: BurstNetwork, size: int, number: int) -> SimOperation:
    """The sum of all ranks, on all ranks. `number` counts the operations of the network from 1.

    Raises: NotCompleted.
    """
    parts, expected = _drawn(network, network.world_size, number, size)
    counted = _Counts(network)
    network.submit_all(number, parts, deadline=DEADLINE)
    return counted.until(number, size, "all_reduce", network.world_size, (parts, expected))


def incast(network: BurstNetwork, size: int, senders: int, number: int) -> SimOperation:
    """`senders` ranks send all of their tensors at once to rank 0, which adds them to its own.

    Raises: NotCompleted.
    """
    members = tuple(range(senders + 1))
    parts, expected = _drawn(network, len(members), number, size)
    counted = _Counts(network)
    for rank, part in enumerate(parts):
        network.submit(
            rank,
            number,
            part,
            program=direct(rank, len(members), size, ROOT, CHUNK * SEGMENT),
            group=Group(SENDERS, members, rank, "incast"),
            deadline=DEADLINE,
        )
    results = parts[ROOT : ROOT + 1]
    return counted.until(number, size, "reduce", len(members), (results, expected))


def limit(programs: Iterable[Program], rate_bps: float) -> float:
    """Seconds that the busiest port takes for its data: each segment once, with all headers.

    A port carries what one host sends, or what it receives. Control and retransmissions come on
    top, and so does the time without data: round trips and wake-ups.
    """
    out, into = Counter[int](), Counter[int]()
    for (source, target), carried in carried_bytes(programs).items():
        out[source] += carried
        into[target] += carried
    return max([*out.values(), *into.values()]) * 8 / rate_bps


def carried_bytes(programs: Iterable[Program]) -> Counter[tuple[int, int]]:
    """Bytes of data by sender and receiver: each segment once, with all headers."""
    carried = Counter[tuple[int, int]]()
    for rank, program in enumerate(programs):
        for step in program.steps:
            if isinstance(step, Send):
                carried[rank, step.peer] += with_headers(step.span.size)
    return carried


def with_headers(size: int) -> int:
    """Bytes on the wire of `size` bytes of data."""
    return size + -(-size // SEGMENT) * AROUND


def _drawn(
    network: BurstNetwork, ranks: int, number: int, size: int
) -> tuple[list[Tensor], Tensor]:
    """New data for each rank, and the right result."""
    parts = draw("float32", ranks, size // 4, network.seed * 10_007 + number)
    return parts, rank_ordered(parts, "float32", "sum")


def different(result: Tensor, expected: Tensor) -> int:
    """Elements that differ in a bit."""
    return int(np.count_nonzero(result.view(np.uint32) != expected.view(np.uint32)))


class _Counts:
    """The counters of a network when an operation begins."""

    def __init__(self, network: BurstNetwork) -> None:
        self._network = network
        self._before = self._now()
        self._begun, self._cpu = network.now, time.process_time()

    def until(
        self,
        number: int,
        size: int,
        collective: str,
        ranks: int,
        results: tuple[list[Tensor], Tensor],
    ) -> SimOperation:
        """Run until all of its ranks have their results; compare those with the right one."""
        network = self._network
        ended = network.complete(number, ranks=ranks)
        cpu = time.process_time() - self._cpu
        dropped, events, datagrams = map(int.__sub__, self._now(), self._before)
        programs = [network.programs[rank, number] for rank in range(ranks)]
        return SimOperation(
            collective,
            size,
            ranks,
            max(network.done_at[number][rank] for rank in range(len(results[0]))) - self._begun,
            ended - self._begun,
            limit(programs, network.plan.up.rate_bps),
            dropped,
            events,
            datagrams,
            cpu,
            sum(different(each, results[1]) for each in results[0]),
        )

    def _now(self) -> tuple[int, int, int]:
        """Datagrams dropped, events, and datagrams sent."""
        network = self._network
        overflowed = sum(station.overflowed for station in network.stations)
        return network.fabric.dropped + overflowed, network.calendar.handled, network.carried
