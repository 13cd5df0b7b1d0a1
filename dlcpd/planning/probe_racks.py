"""Racks of hosts from the first routers that their paths cross, and from rates where none answers.

The switch of a rack answers a datagram that expires there (ICMP time exceeded). Hosts with a common
first router are in one rack: with several rails a host has several first routers, and some may not
answer. Where racks share an address, as anycast gateways do, they look like one rack.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dlcpd.planning.probe_rounds import CLEARLY, Pairs

MOST_PLACING: Final = 10  # rounds that place silent hosts: 2 s


@dataclass(frozen=True, slots=True)
class FoundRacks:
    """The hosts of each rack by number, hosts that are in none yet, and how they were found."""

    racks: tuple[tuple[int, ...], ...]
    silent: tuple[int, ...]
    reason: str


def by_routers(
    first: Sequence[Collection[str]], between: Mapping[tuple[int, int], int] | None = None
) -> FoundRacks:
    """Racks by routers. `first`: by host, the routers that answered first on its paths; `between`:
    how many routers answered on the paths from a host to another.

    A switch may answer each of its hosts from another address. So hosts with no router between
    them are in one rack, too, and, where there are no such hosts, those with one.
    """
    between = between or {}
    members = {host: [host] for host, routers in enumerate(first) if routers}
    rack_of = {host: host for host in members}

    def join(a: int, b: int) -> None:
        kept, other = sorted((rack_of[a], rack_of[b]))
        if kept != other:
            members[kept] += members.pop(other)
            rack_of.update(dict.fromkeys(members[kept], kept))

    holder = dict[str, int]()
    for host in rack_of:
        for router in first[host]:
            join(host, holder.setdefault(router, host))
    # A router that did not answer one host may have answered the other.
    known = {
        (a, b): max(count, between.get((b, a), 0))
        for (a, b), count in between.items()
        if a in rack_of and b in rack_of
    }
    least = min(known.values(), default=2)
    for (a, b), count in known.items():
        if count == least < 2:  # two switches
            join(a, b)
    racks = tuple(sorted(tuple(sorted(hosts)) for hosts in members.values()))
    silent = tuple(host for host, routers in enumerate(first) if not routers)
    if not racks:
        every = tuple(range(len(first)))
        return FoundRacks((every,) if every else (), (), "no router answered: one rack is assumed")
    if len(racks) == 1:
        why = "one: all hosts that a router answered have one switch in common"
    else:
        why = f"{len(racks)}: hosts of a rack have a first router in common, or none between them"
    return FoundRacks(racks, silent, why)


def placing_rounds(found: FoundRacks) -> Iterator[tuple[int, int, Pairs]]:
    """(host, rack, pairs) of the rounds that place the silent hosts; none if there are too many.

    The host sends to one member of the rack while its other members receive from other racks. A
    host outside then shares the uplink with them, a host inside does not.
    """
    if len(found.silent) * len(found.racks) > MOST_PLACING or len(found.racks) == 1:
        return
    for host in found.silent:
        for rack, members in enumerate(found.racks):
            outside = (h for other in found.racks if other is not members for h in other)
            busy = zip(outside, members[1:], strict=False)
            yield host, rack, ((host, members[0]), *busy)


def placed(found: FoundRacks, rates: Mapping[tuple[int, int], int]) -> FoundRacks:
    """All hosts in racks. `rates`: bit/s by silent host and rack, as `placing_rounds` found them.

    A host goes to the rack to which it is clearly fastest. Where none is, uplinks do not slow it,
    or nothing was measured; all such hosts go to the first rack.
    """
    racks = [list(members) for members in found.racks]
    measured, assumed = 0, 0
    for host in found.silent:
        order = sorted(range(len(racks)), key=lambda rack: (-rates.get((host, rack), 0), rack))
        best = [rates.get((host, rack), 0) for rack in order]
        clear = len(racks) > 1 and best[0] > best[1] * CLEARLY
        racks[order[0] if clear else 0].append(host)
        measured, assumed = measured + clear, assumed + (not clear)
    reason = found.reason
    if measured:
        reason += f"; {measured} without one placed by rate"
    if assumed:
        reason += f"; {assumed} without one, and as fast to all racks, put into the first"
    return FoundRacks(tuple(tuple(sorted(members)) for members in racks), (), reason)
