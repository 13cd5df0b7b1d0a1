"""The order in which devices are changed, so that every ECMP group keeps a path. Pure.

A device is an edge if the intent has a port of it that does not lead to another device of the
intent. Its tier is its distance from an edge: leaves have tier 0, spines 1. A path goes up and then
down, as eBGP in a Clos network routes (RFC 7938, section 5.2.1): no leaf carries traffic of others.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

from switchcfg.fabric.wiring import Wiring
from switchcfg.intent.intent import Device, Intent

OUTSIDE: Final = -1  # tier of hosts and of devices that are not in the intent
MOST: Final = 256  # devices of a group: as many as `--at-once` may be
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Topology:
    """Neighbours and tiers of devices with links; neighbours outside of the intent included."""

    near: Mapping[str, frozenset[str]] = field(default_factory=dict)
    tiers: Mapping[str, int] = field(default_factory=dict)  # of devices of the intent

    def tier(self, name: str) -> int:
        """The tier of a device or host."""
        return self.tiers.get(name, OUTSIDE)

    @property
    def edges(self) -> list[str]:
        """The devices of tier 0."""
        return sorted(name for name, tier in self.tiers.items() if tier == 0)


NO_LINKS: Final = Topology()


def topology(intent: Intent, wiring: Wiring) -> Topology:
    """The topology of the devices that have links."""
    near: dict[str, set[str]] = {}
    inner = {end for link in wiring.links for end in (link.one, link.other)}
    for link in wiring.links:
        near.setdefault(link.one.device, set()).add(link.other.device)
        near.setdefault(link.other.device, set()).add(link.one.device)
    edges = {
        device.name
        for device in intent.devices
        if device.name in near
        and not {(device.name, port) for port in device.ports}
        <= {(end.device, end.port) for end in inner if end.device == device.name}
    }
    tiers = _distances(near, edges or near.keys())
    for end, neighbour in wiring.outside:
        if end.device in near:
            host = f"host {neighbour.partition(' ')[0]}"  # apart from names of devices
            near[end.device].add(host)
            near.setdefault(host, set()).add(end.device)
    return Topology({name: frozenset(them) for name, them in near.items()}, tiers)


def _distances(near: Mapping[str, Collection[str]], start: Collection[str]) -> dict[str, int]:
    found = dict.fromkeys(start, 0)
    now = [*found]
    while now:
        following = [n for name in now for n in near[name] if n not in found]
        found |= dict.fromkeys(following, found[now[0]] + 1)
        now = [*dict.fromkeys(following)]
    return found | {name: 0 for name in near if name not in found}


def waves(devices: Sequence[Device], fabric: Topology = NO_LINKS) -> list[list[Device]]:
    """Groups of devices that may be changed at the same time.

    The first device, the canary, is alone; then its tier's others, from the edge up, and within a
    tier its side first. Never together are: two sides; two tiers; neighbours; devices with a common
    neighbour that is not above them, as spines above a leaf, or leaves with a host of both; and a
    device without links with others, unless both have the same side. Each group leaves a path
    between all pairs of edge devices outside of it that had one.
    """
    if not devices:
        return []
    canary, *rest = devices
    out = [[canary]]
    sides = list(dict.fromkeys(each.side for each in rest))

    def key(each: Device) -> tuple[int, bool, bool, int]:
        tier = fabric.tiers.get(each.name, 0)
        return tier, bool(each.side), each.side != canary.side, sides.index(each.side)

    left = sorted(rest, key=key)
    while left:
        wave = _wave(left, fabric, check=False)
        if len(wave) > 1 and _cuts(wave, fabric):  # rare, so each device is checked only then
            wave = _wave(left, fabric, check=True)
        out.append(wave)
        taken = {each.name for each in wave}
        left = [each for each in left if each.name not in taken]
    return out


def _wave(left: Sequence[Device], fabric: Topology, *, check: bool) -> list[Device]:
    """The first device, and all that may be changed with it; `check`: that leave all paths."""
    wave = [left[0]]
    for each in left[1:]:
        if len(wave) == MOST:
            break
        fits = not any(_apart(each, other, fabric) for other in wave)
        if fits and not (check and _cuts([*wave, each], fabric)):
            wave.append(each)
    return wave


def _cuts(wave: Sequence[Device], fabric: Topology) -> bool:
    return next(lost(fabric, {each.name for each in wave}), None) is not None


def _apart(one: Device, other: Device, fabric: Topology) -> bool:
    """Whether two devices must not be changed at the same time."""
    if one.side and other.side and one.side != other.side:
        return True
    linked = (one.name in fabric.near) + (other.name in fabric.near)
    if linked == 2:
        tier = fabric.tier(one.name)
        if tier != fabric.tier(other.name) or other.name in fabric.near[one.name]:
            return True
        common = fabric.near[one.name] & fabric.near[other.name]
        return any(fabric.tier(each) <= tier for each in common)
    return linked == 1 or not one.side or not other.side


def lost(fabric: Topology, down: Collection[str]) -> Iterator[Pair]:
    """Pairs of edge devices, not in `down`, that have a path only over devices in `down`."""
    groups: dict[tuple[frozenset[str], frozenset[str], int, int], list[str]] = {}
    before, after = _above(fabric, ()), _above(fabric, down)
    had, has = _parts(fabric, ()), _parts(fabric, down)
    for name in fabric.edges:
        if name not in down:
            key = (before[name], after[name], had[name], has[name])
            groups.setdefault(key, []).append(name)
    for one, other in combinations(groups, 2):
        if one[0] & other[0]:
            cut = not one[1] & other[1]
        else:  # without a path up and down before: any path counts
            cut = one[2] == other[2] and one[3] != other[3]
        if cut:
            yield from (_sorted(a, b) for a in groups[one] for b in groups[other])
    for (up, still, _, _), names in groups.items():
        if up and not still:
            yield from combinations(names, 2)


def _sorted(one: str, other: str) -> Pair:
    return (one, other) if one < other else (other, one)


def _above(fabric: Topology, down: Collection[str]) -> dict[str, frozenset[str]]:
    """For each device that is not in `down`: all devices that paths up from it reach."""
    found: dict[str, frozenset[str]] = {}
    for name in sorted(fabric.tiers, key=fabric.tier, reverse=True):
        if name not in down:
            tier = fabric.tier(name)
            higher = [n for n in fabric.near[name] if fabric.tier(n) > tier and n in found]
            found[name] = frozenset(higher).union(*(found[n] for n in higher))
    return found


def _parts(fabric: Topology, down: Collection[str]) -> dict[str, int]:
    """The connected part of the fabric that each device is in, by any path."""
    found: dict[str, int] = {}
    for start in fabric.tiers:
        if start in down or start in found:
            continue
        left = [start]
        found[start] = len(found)
        while left:
            for each in fabric.near[left.pop()]:
                if each in fabric.tiers and each not in down and each not in found:
                    found[each] = found[start]
                    left.append(each)
    return found
