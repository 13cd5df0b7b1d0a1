"""What the byte counts of probe rounds say: rates of hosts and of uplinks, as a network."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dlcpd.planning.graph import Rates
from dlcpd.planning.probe_rounds import Racks
from dlcpd.schedules.network import Costs, Host, JobNetwork, Rack

_BITS: Final = 8  # of a byte


@dataclass(frozen=True, slots=True)
class RoundBytes:
    """Bytes that arrived in a round, by sender and receiver, and its time in seconds."""

    arrived: Mapping[tuple[int, int], int]
    seconds: float


@dataclass(frozen=True, slots=True)
class ProbedRates:
    """Rates in bit/s, each the most that a round has shown; 0: no round had bytes of it."""

    hosts: tuple[Rates, ...]
    uplinks: tuple[Rates, ...]  # by rack: out of it and into it

    @property
    def unseen(self) -> tuple[int, ...]:
        """Hosts that sent or received nothing in all rounds: their rates are not known."""
        return tuple(host for host, rates in enumerate(self.hosts) if not min(rates))


def probed(racks: Racks, seen: Sequence[RoundBytes]) -> ProbedRates:
    """The rates of hosts and uplinks.

    A flow is no faster than the slower of its ends, so the fastest round of a host is nearest to
    its rate. An uplink is shown to be as fast as all flows over it in one round together; if their
    hosts were the limit, it is faster, and does not limit those hosts.
    """
    rack_of = {host: number for number, members in enumerate(racks) for host in members}
    hosts = {host: [0, 0] for host in rack_of}
    uplinks = [[0, 0] for _ in racks]
    for each in seen:
        ends: dict[tuple[int, int], int] = {}  # bytes by host and direction, of this round
        over: dict[tuple[int, int], int] = {}  # by rack and direction
        for (sender, receiver), count in each.arrived.items():
            for host, way in ((sender, 0), (receiver, 1)):
                ends[host, way] = ends.get((host, way), 0) + count
                if rack_of[sender] != rack_of[receiver]:
                    rack = rack_of[host], way
                    over[rack] = over.get(rack, 0) + count
        for table, counts in ((hosts, ends), (uplinks, over)):
            for (number, way), count in counts.items():
                rate = round(count * _BITS / each.seconds)
                table[number][way] = max(table[number][way], rate)
    return ProbedRates(
        tuple(Rates(*hosts[host]) for host in sorted(hosts)),
        tuple(Rates(*rates) for rates in uplinks),
    )


def network(
    names: Sequence[str], racks: Racks, found: ProbedRates, costs: Costs, version: int
) -> JobNetwork:
    """The network with these rates, rounded as `JobNetwork` rounds. One rack is one switch.

    Raises: BadNetwork if a host or an uplink has no rate.
    """
    hosts = tuple(
        Host(name, (rates.send,), (rates.receive,))
        for name, rates in zip(names, found.hosts, strict=True)
    )
    placed = tuple(
        Rack(tuple(names[host] for host in members), *rates)
        for members, rates in zip(racks, found.uplinks, strict=True)
    )
    return JobNetwork(hosts, placed if len(placed) > 1 else (), costs, version)
