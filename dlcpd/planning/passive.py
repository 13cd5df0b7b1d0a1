"""Rates of a job's links, from the traffic of its own flows.

Only rounds in which a queue stands count: then a link is the limit, and not a sender that has
nothing to send. A host sends to all others at once, so its link carries the sum of its flows. Under
load that is 0.8 to 0.9 of the link's rate, and less where CPUs are the limit: of all hosts, which
changes no plan. In racks only flows inside them count, and hosts are compared with those of their
rack: the uplink limits other flows, and takes its share of all links alike.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from dlcpd.planning.replan import TICK, WINDOW
from dlcpd.schedules.network import MAX_RATE, HostCapacity

LEAST_BUSY: Final = 0.02  # seconds of a window with a standing queue, that say something
HEADERS: Final = 82  # bytes of a datagram beside its segment: 40 here, UDP, IPv4 and Ethernet
BITS: Final = 8
LEAST_HOSTS: Final = 3  # of a switch: a flow between two does not tell which of them is slow
TICKS: Final = round(WINDOW / TICK)  # reports in a window

Hosts = Sequence[tuple[str, HostCapacity]]


@dataclass(slots=True)
class FlowRates:
    """The flows of one session, by the reports of its engines."""

    # By peer and path: busy packets and seconds of the last reports, the oldest first.
    _before: dict[tuple[int, int], deque[tuple[int, float]]] = field(default_factory=dict)

    def window(self, session: Mapping[str, Any]) -> dict[int, int]:
        """Bit/s to each peer in the last WINDOW, of a report every TICK; peers without a busy path
        are left out."""
        found = dict[int, int]()
        for peer in session["peers"]:
            size = (peer["segment_size"] + HEADERS) * BITS
            for number, path in enumerate(peer["paths"]):
                packets, seconds = self._news(peer["rank"], number, path["classes"].values())
                if seconds >= LEAST_BUSY and packets > 0:
                    rate = round(packets * size / seconds)
                    found[peer["rank"]] = min(found.get(peer["rank"], 0) + rate, MAX_RATE)
        return found

    def _news(
        self, rank: int, path: int, classes: Iterable[Mapping[str, Any]]
    ) -> tuple[int, float]:
        rows = [(row["busy_packets"], row["busy_seconds"]) for row in classes]
        now = sum(row[0] for row in rows), sum(row[1] for row in rows)
        reports = self._before.setdefault((rank, path), deque([(0, 0.0)], TICKS))
        before = reports[0]
        reports.append(now)
        return now[0] - before[0], now[1] - before[1]


def between_hosts(
    flows: Mapping[tuple[int, int], int], host_of: Mapping[int, str]
) -> dict[tuple[str, str], int]:
    """Bit/s between hosts, of flows between ranks."""
    found = dict[tuple[str, str], int]()
    for (source, target), rate in flows.items():
        pair = host_of[source], host_of[target]
        if pair[0] != pair[1]:
            found[pair] = found.get(pair, 0) + rate
    return found


def planned(hosts: Hosts) -> dict[str, int]:
    """Bit/s of each link by its name: "HOST out", "HOST in"."""
    found = dict[str, int]()
    for host, told in hosts:
        found[f"{host} out"], found[f"{host} in"] = sum(told.out_bps), sum(told.in_bps)
    return found


def measured(hosts: Hosts, flows: Mapping[tuple[str, str], int]) -> dict[str, int]:
    """The same from flows between hosts, of the links all of whose flows are known."""
    names = [host for host, _ in hosts]
    found = dict[str, int]()
    for host in names:
        others = [other for other in names if other != host]
        out = [(host, other) for other in others]
        into = [(other, host) for other in others]
        for way, pairs in (("out", out), ("in", into)):
            rates = [flows[pair] for pair in pairs if pair in flows]
            if others and len(rates) == len(others):
                found[f"{host} {way}"] = sum(rates)
    return found


def by_rack(hosts: Hosts) -> list[Hosts]:
    """The hosts of each switch, where there are LEAST_HOSTS or more."""
    racks = dict[str, list[tuple[str, HostCapacity]]]()
    for host, told in hosts:
        racks.setdefault(told.rack, []).append((host, told))
    return [members for members in racks.values() if len(members) >= LEAST_HOSTS]


def relative(rates: Mapping[str, int], plan: Mapping[str, int]) -> dict[str, int]:
    """`rates` times the factor with which their median is that of the plan: where CPUs are the
    limit, all links are measured too low alike. No rates unless most links of the plan have one.

    None is above the fastest of the plan: the sum of flows that were busy one after the other is
    too high, and a link that is faster than all others is the limit of no plan.
    """
    if 2 * len(rates) <= len(plan):
        return {}
    factor, most = median(plan[link] / rate for link, rate in rates.items()), max(plan.values())
    return {link: min(max(round(rate * factor), 1), most) for link, rate in rates.items()}


def with_rates(hosts: Hosts, rates: Mapping[str, int]) -> list[tuple[str, HostCapacity]]:
    """`hosts` with these rates of their links; others, and racks, stay. Rails keep their
    proportions."""
    return [
        (
            host,
            told._replace(
                out_bps=_scaled(told.out_bps, rates.get(f"{host} out")),
                in_bps=_scaled(told.in_bps, rates.get(f"{host} in")),
            ),
        )
        for host, told in hosts
    ]


def _scaled(rails: tuple[int, ...], rate: int | None) -> tuple[int, ...]:
    whole = sum(rails)
    return rails if rate is None else tuple(max(rail * rate // whole, 1) for rail in rails)
