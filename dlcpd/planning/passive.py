"""Rates of a job's links, from the traffic of its hosts.

Each host tells what its link carries in each direction (`dlcpd.core.paths.link_rate`). That is at
least as fast as its best bins, and no faster where it was the limit: data of all other hosts waited
in its queue. A slow link is the limit most of the time, and links that wait for it are not; so a
link that carries less than planned counts as slow only if it was the limit about as long as any.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from dlcpd.planning.probe_rounds import CLEARLY
from dlcpd.planning.replan import CHANGED
from dlcpd.schedules.network import HostCapacity

LEAST_PART: Final = 20  # percent of a window in which a slow link is the limit: 0.3 s
LEAST_OF_LONGEST: Final = 0.6  # of the part of the link that is the limit for longest
MOST_OF_OTHERS: Final = 0.5  # the same of links of other hosts; if one is the limit for longer, or
MOST_SLOW: Final = 3  # more than one in three links are slow, it is the CPUs
LEAST_ENDS: Final = 1.5  # rates of the other ends of a link's flows, of its own
LEAST_HOSTS: Final = 3  # of a switch: a flow between two does not tell which of them is slow

Hosts = Sequence[tuple[str, HostCapacity]]


class LinkRates(NamedTuple):
    """A direction of a link, as its host tells it. Bit/s, with headers."""

    most: int  # the link has at least this
    rate: int  # while it was the limit
    part: int  # of the window in which it was the limit, in percent


def planned(hosts: Hosts) -> dict[str, int]:
    """Bit/s of each link by its name: "HOST out", "HOST in"."""
    found = dict[str, int]()
    for host, told in hosts:
        found[f"{host} out"], found[f"{host} in"] = sum(told.out_bps), sum(told.in_bps)
    return found


def by_rack(hosts: Hosts) -> list[Hosts]:
    """The hosts of each switch, where there are LEAST_HOSTS or more."""
    racks = dict[str, list[tuple[str, HostCapacity]]]()
    for host, told in hosts:
        racks.setdefault(told.rack, []).append((host, told))
    return [members for members in racks.values() if len(members) >= LEAST_HOSTS]


def measured(told: Mapping[str, LinkRates], plan: Mapping[str, int]) -> dict[str, int]:
    """Bit/s of the links of a switch that are known. `plan`: of all of them."""
    longest = max((row.part for row in told.values()), default=0)
    enough = max(LEAST_PART, longest * LEAST_OF_LONGEST)
    found, slow = dict[str, int](), dict[str, int]()
    for link, row in told.items():
        if row.most > plan[link] * (1 - CHANGED):
            found[link] = levelled(row.most, plan)
        elif row.part >= enough and not _may_wait_at_other_ends(link, plan):
            slow[link] = max(row.rate, 1)
    hosts = {_host(link) for link in slow}
    others = [row.part for link, row in told.items() if _host(link) not in hosts]
    cpus = max(others, default=0) >= longest * MOST_OF_OTHERS or len(slow) * MOST_SLOW > len(plan)
    return found | ({} if cpus else slow)


def _host(link: str) -> str:
    return link.rpartition(" ")[0]


def _may_wait_at_other_ends(link: str, plan: Mapping[str, int]) -> bool:
    """Whether the other ends of a link's flows together are hardly faster than the link: data that
    all wait may wait there."""
    back = " in" if link.endswith(" out") else " out"
    ends = [rate for of, rate in plan.items() if of.endswith(back) and _host(of) != _host(link)]
    return sum(ends) < LEAST_ENDS * plan[link]


def levelled(rate: int, plan: Mapping[str, int]) -> int:
    """The rate of a link that has at least `rate`: that of the fastest of the plan, if noise cannot
    tell them apart, and no more, since such a link is the limit of no plan."""
    fastest = max(plan.values())
    return fastest if rate * CLEARLY >= fastest else rate


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
