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
MOST_SLOW: Final = 3  # links for each slow one; if more are slow at once, it is the CPUs
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
        elif row.part >= enough and not _behind_others(link, told):
            slow[link] = max(row.rate, 1)
    return found | (slow if len(slow) * MOST_SLOW <= len(plan) else {})


def _behind_others(link: str, told: Mapping[str, LinkRates]) -> bool:
    """Whether the other ends of all flows of a link are the limit, too: data wait at either."""
    host, _, way = link.rpartition(" ")
    back = " in" if way == "out" else " out"
    ends = [row.part for of, row in told.items() if of.endswith(back) and of != host + back]
    return min(ends, default=0) >= LEAST_PART


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
