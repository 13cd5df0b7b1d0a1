"""What the rounds of a probe say: rates of hosts and of uplinks, as each host would tell them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from dlcpd.planning.graph import Rates
from dlcpd.planning.probe_rounds import CLEARLY, Racks
from dlcpd.schedules.network import MAX_RATE, HostCapacity

RoundRates = Mapping[tuple[int, int], int]  # bit/s by (sender, receiver), all at the same time


@dataclass(frozen=True, slots=True)
class ProbedRates:
    """Rates in bit/s, each the most that a round has shown; 0: no round had bytes of it."""

    hosts: tuple[Rates, ...]
    uplinks: tuple[Rates, ...]  # by rack: out of it and into it

    @property
    def unseen(self) -> tuple[int, ...]:
        """Hosts that sent or received nothing in all rounds: their rates are not known."""
        return tuple(host for host, rates in enumerate(self.hosts) if not min(rates))


def probed(racks: Racks, seen: Sequence[RoundRates]) -> ProbedRates:
    """The rates of hosts and uplinks.

    A flow is no faster than the slower of its ends, so the fastest round of a host is nearest to
    its rate. An uplink is shown to be as fast as all flows over it in one round together; if their
    hosts were the limit, it is faster, and does not limit those hosts.
    """
    rack_of = {host: number for number, members in enumerate(racks) for host in members}
    hosts = {host: [0, 0] for host in rack_of}
    uplinks = [[0, 0] for _ in racks]
    for each in seen:
        ends: dict[tuple[int, int], int] = {}  # bit/s by host and direction, of this round
        over: dict[tuple[int, int], int] = {}  # by rack and direction
        for (sender, receiver), rate in each.items():
            for host, way in ((sender, 0), (receiver, 1)):
                ends[host, way] = ends.get((host, way), 0) + rate
                if rack_of[sender] != rack_of[receiver]:
                    rack = rack_of[host], way
                    over[rack] = over.get(rack, 0) + rate
        for table, sums in ((hosts, ends), (uplinks, over)):
            for (number, way), rate in sums.items():
                table[number][way] = max(table[number][way], rate)
    return ProbedRates(
        tuple(Rates(*hosts[host]) for host in sorted(hosts)),
        tuple(Rates(*rates) for rates in uplinks),
    )


def alike(rates: Sequence[Rates]) -> list[Rates]:
    """Rates that noise cannot tell apart, those within CLEARLY of the fastest, are their median:
    else equal hosts would get unequal shares."""
    known = {rate: rate for each in rates for rate in each}
    left = sorted((rate for each in rates for rate in each), reverse=True)
    while left:
        near = [rate for rate in left if rate * CLEARLY >= left[0]]
        known |= dict.fromkeys(near, round(median(near)))
        left = left[len(near) :]
    return [Rates(*(known[rate] for rate in each)) for each in rates]


def capacities(racks: Racks, found: ProbedRates) -> list[HostCapacity]:
    """The capacity of each host, by number. One rack is one switch; racks are named by number.

    All rates of `found` are above 0.
    """
    rack_of = {host: number for number, members in enumerate(racks) for host in members}
    uplinks, told = alike(found.uplinks), []
    for host, rates in enumerate(alike(found.hosts)):
        send, receive = (min(rate, MAX_RATE) for rate in rates)
        mine = HostCapacity((send,), (receive,))
        if len(racks) > 1:
            up, down = (min(rate, MAX_RATE) for rate in uplinks[rack_of[host]])
            mine = mine._replace(rack=f"rack {rack_of[host]}", up_bps=up, down_bps=down)
        told.append(mine)
    return told
