"""Predicts how long a collective takes on a network: the cost model by which plans are compared.

time = waiting + the larger of bytes / rate and CPU, which work side by side. For each link: the
time until its first transfer can begin, all bytes over it, and the time from the end of its last
transfer to the end of the operation; the largest of these sums counts (the bound of one machine in
job-shop scheduling). A chain of transfers costs a latency for each, so a small operation costs its
rounds. CPU time is that of the busiest host for transfers, datagrams and wake-ups, shared by cores.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from dlcpd.schedules.layout import SEGMENT
from dlcpd.schedules.model import Program, Receive, Send
from dlcpd.schedules.network import Costs, JobNetwork

AROUND: Final = 98  # bytes of headers and framing of a datagram
# Fitted to the simulated core (docs/planner.md): pacing and control take the rest of the rate.
EFFICIENCY: Final = 0.81
ROUND: Final = 1.5  # latencies of each round after the first: results wait for the last rank
ARRIVALS: Final = 2  # transfers that a wake-up takes in, where the CPU is the limit
_NS: Final = 1e-9

Link = tuple[str, int, int]  # ("host" or "rack", its number, 0 out of it or 1 into it)
At = tuple[int, int]  # a step: rank, and position in its program


@dataclass(frozen=True, slots=True)
class Prediction:
    """Seconds of an operation, and what they consist of."""

    seconds: float
    link: Link | None  # the one that limits; None: nothing is sent
    bytes_seconds: float  # of that link's bytes
    waiting_seconds: float  # of that link: chains of transfers before and after its own
    cpu_seconds: float  # of the busiest host


def predict(programs: Sequence[Program], network: JobNetwork, cores: int = 1) -> Prediction:
    """The time of the programs of all ranks, rank r on host r of the network."""
    chains = _Chains(programs, network)
    cpu = max(_cpu(program, network.costs) for program in programs) / cores
    best = Prediction(cpu, None, 0.0, 0.0, cpu)
    for link, transfers in chains.over.items():
        busy = sum(chains.wire(link, at) for at in transfers)
        hop = min(chains.hop(at) for at in transfers)
        waits = min(chains.head[at] for at in transfers) + min(chains.tail[at] for at in transfers)
        waits = max(waits + hop, hop + ROUND * hop * (chains.rounds - 1))
        if (seconds := max(busy, cpu) + waits) > best.seconds:
            best = Prediction(seconds, link, busy, waits, cpu)
    return best


class _Chains:
    """When each transfer can begin at the earliest, and what must follow it at the least."""

    def __init__(self, programs: Sequence[Program], network: JobNetwork) -> None:
        self._programs = programs
        self._network = network
        self._rack = {host: n for n, group in enumerate(network.groups) for host in group}
        self._sends = {
            (rank, position): step
            for rank, program in enumerate(programs)
            for position, step in enumerate(program.steps)
            if isinstance(step, Send)
        }
        self.over: dict[Link, list[At]] = defaultdict(list)  # transfers over each link
        flows: dict[Link, set[tuple[int, int]]] = defaultdict(set)
        for at, send in self._sends.items():
            for link in self._way(at):
                self.over[link].append(at)
                flows[link].add((at[0], send.peer))
        self._sharing = {link: len(pairs) for link, pairs in flows.items()}
        order = list(self._order())
        self.head = dict.fromkeys(order, 0.0)  # seconds before each step
        before = dict.fromkeys(order, 0)  # transfers of the longest chain before each step
        for at in order:
            ends, number = self.head[at] + self._cost(at), before[at] + (at in self._sends)
            for later in self._next(at):
                self.head[later] = max(self.head[later], ends)
                before[later] = max(before[later], number)
        self.rounds = max((before[at] + 1 for at in self._sends), default=0)
        self.tail = dict.fromkeys(order, 0.0)  # seconds after each step
        for at in reversed(order):
            for later in self._next(at):
                self.tail[at] = max(self.tail[at], self.tail[later] + self._cost(later))

    def wire(self, link: Link, at: At) -> float:
        """Seconds that a transfer takes on a link."""
        kind, number, way = link
        if kind == "host":
            rate = (self._network.out_bps, self._network.in_bps)[way][number]
        else:
            rack = self._network.racks[number]
            rate = (rack.up_bps, rack.down_bps)[way]
        size = self._sends[at].span.size
        return (size + datagrams(size) * AROUND) * 8 / (rate * EFFICIENCY)

    def hop(self, at: At) -> float:
        """Seconds of a transfer without its bytes: the latency, the CPU time that its end takes the
        receiver, and its first datagram on the links after the first, since switches forward whole
        datagrams."""
        size = self._sends[at].span.size
        part = min(size, SEGMENT) / max(size, 1)
        times = [self.wire(link, at) * part for link in self._way(at)]
        costs = self._network.costs
        end = costs.latency_ns + costs.wake_up_ns + costs.transfer_ns
        return end * _NS + sum(times) - max(times)

    def _cost(self, at: At) -> float:
        """Seconds of a step: a transfer takes a hop, and the time of its slowest link, which it
        shares with the transfers to other peers."""
        if at not in self._sends:
            return 0.0
        longest = max(self.wire(link, at) * self._sharing[link] for link in self._way(at))
        return self.hop(at) + longest * EFFICIENCY  # nothing else is on the way yet

    def _way(self, at: At) -> list[Link]:
        """The links of a transfer."""
        sender, receiver = at[0], self._sends[at].peer
        links = [("host", sender, 0), ("host", receiver, 1)]
        if (a := self._rack[sender]) != (b := self._rack[receiver]):
            links += [("rack", a, 0), ("rack", b, 1)]
        return links

    def _next(self, at: At) -> Iterator[At]:
        rank, position = at
        yield from ((rank, later) for later in self._programs[rank].followers[position])
        if at in self._sends:
            send = self._sends[at]
            yield send.peer, self._programs[send.peer].receives[rank, send.index]

    def _order(self) -> Iterator[At]:
        """All steps, each after those that it waits for."""
        waits = {
            (rank, position): len(step.after) + isinstance(step, Receive)
            for rank, program in enumerate(self._programs)
            for position, step in enumerate(program.steps)
        }
        ready = [at for at, count in waits.items() if not count]
        while ready:
            at = ready.pop()
            yield at
            for later in self._next(at):
                waits[later] -= 1
                if not waits[later]:
                    ready.append(later)


def datagrams(size: int) -> int:
    """Datagrams of a transfer."""
    return -(-size // SEGMENT)


def _cpu(program: Program, costs: Costs) -> float:
    """CPU seconds of a rank; one wake-up is that in which the operation begins."""
    transfers = [step for step in program.steps if isinstance(step, Send | Receive)]
    packets = sum(datagrams(step.span.size) for step in transfers)
    wake_ups = 1 + sum(isinstance(step, Receive) for step in transfers) / ARRIVALS
    return _NS * (
        len(transfers) * costs.transfer_ns
        + packets * costs.datagram_ns
        + wake_ups * costs.wake_up_ns
    )
