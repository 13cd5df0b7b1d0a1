"""A fabric as readable text: links, differences, lossless paths, and the order of changes. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from switchcfg.fabric.judge import FabricVerdict, Finding
from switchcfg.fabric.order import Topology, lost
from switchcfg.fabric.wiring import Link, Wiring
from switchcfg.intent.intent import Device
from switchcfg.intent.links import End
from switchcfg.intent.port_ranges import compact
from switchcfg.plan.state import natural

FEW: Final = 8  # entries of one kind that are shown; --json has all


def links(wiring: Wiring) -> Iterator[str]:
    """Lines of the links, and of ports whose neighbour is not a device of the intent."""
    pairs: dict[tuple[str, str, tuple[str, ...]], list[Link]] = {}
    for link in wiring.links:
        pairs.setdefault((link.one.device, link.other.device, link.by), []).append(link)
    for (one, other, by), them in pairs.items():
        ends = _both(them)
        yield f"{one} {ends[0]} - {other} {ends[1]} ({', '.join(by)})"
    ports: dict[str, list[str]] = {}
    for end, _ in wiring.outside:
        ports.setdefault(end.device, []).append(end.port)
    for device, names in ports.items():
        yield f"{device} {_ports(dict.fromkeys(names))} - neighbours outside of the intent"
    for device, alone in _by_device(wiring.alone).items():
        yield f"{device} {_ports(alone)} - without a neighbour"
    yield from (f"one-sided: {each}" for each in few(wiring.one_sided))


def problems(verdict: FabricVerdict) -> Iterator[str]:
    """Lines of what differs at the ends of links, and of where lossless paths break."""
    for line in few(list(_findings(verdict.findings))):
        yield f"differs: {line}"
    for each in verdict.lossless:
        points = ", ".join(map(str, each.dscp))
        if each.breaks:
            yield f"lossless: DSCP {points}: on {each.whole} of {verdict.judged} links; breaks at"
            yield from (f"  {line}" for line in few(each.breaks))
    yield from (f"not judged: {each}" for each in few(verdict.unjudged))


def whole(verdict: FabricVerdict) -> Iterator[str]:
    """Lines of lossless paths without a break."""
    for each in verdict.lossless:
        if not each.breaks:
            points = ", ".join(map(str, each.dscp))
            yield f"lossless: DSCP {points}: on all {verdict.judged} links"


def order(groups: Sequence[Sequence[Device]], fabric: Topology) -> Iterator[str]:
    """Lines of the order of changes, and of paths that it cannot keep."""
    shown = (_ports(each.name for each in group) for group in groups)
    yield f"order: {'; then '.join(shown)}"
    for group in groups:
        down = {each.name for each in group}
        pairs = [*islice(lost(fabric, down), FEW + 1)] if down & fabric.near.keys() else []
        while_ = f"while {', '.join(sorted(down))} is changed"
        yield from (f"no other path: {a} and {b}, {while_}" for a, b in pairs[:FEW])
        if len(pairs) > FEW:
            yield f"no other path: more pairs, {while_}"


def document(
    wiring: Wiring, verdict: FabricVerdict, groups: Sequence[Sequence[Device]]
) -> dict[str, Any]:
    """All of it as a JSON value."""
    return {
        "links": [{"ends": _ends(each), "by": each.by} for each in wiring.links],
        "outside": [
            {"device": end.device, "port": end.port, "neighbour": name}
            for end, name in wiring.outside
        ],
        "alone": [{"device": end.device, "port": end.port} for end in wiring.alone],
        "contradictions": wiring.contradictions,
        "one_sided": wiring.one_sided,
        **judged(verdict),
        "order": [[each.name for each in group] for group in groups],
    }


def judged(verdict: FabricVerdict) -> dict[str, Any]:
    """A judgement as a JSON value."""
    return {
        "differences": [
            {
                "ends": _ends(each.link),
                "subject": each.subject,
                "what": each.what,
                "values": [each.one, each.other],
            }
            for each in verdict.findings
        ],
        "lossless": [
            {"dscp": each.dscp, "links": each.whole, "breaks": each.breaks}
            for each in verdict.lossless
        ],
        "judged": verdict.judged,
        "not_judged": verdict.unjudged,
    }


def few(found: Sequence[str]) -> Iterator[str]:
    """At most FEW entries; a last one counts the others."""
    yield from found[:FEW]
    if len(found) > FEW:
        yield f"... and {len(found) - FEW} more"


def _findings(found: Iterable[Finding]) -> Iterator[str]:
    """Equal differences of several links between the same devices share a line."""
    groups: dict[tuple[str, str, str, str, str, str], list[Link]] = {}
    for each in found:
        ends = (each.link.one.device, each.link.other.device)
        key = (*ends, each.subject, each.what, each.one, each.other)
        groups.setdefault(key, []).append(each.link)
    for (one, other, subject, what, here, there), them in groups.items():
        ends = _both(them)
        yield (
            f"{one} {ends[0]} - {other} {ends[1]}: {subject}: {what} {here} on {one}, {there} on "
            f"{other}"
        )


def _by_device(ends: Iterable[End]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for end in ends:
        found.setdefault(end.device, []).append(end.port)
    return found


def _ends(link: Link) -> list[dict[str, str]]:
    return [{"device": end.device, "port": end.port} for end in (link.one, link.other)]


def _both(links: Iterable[Link]) -> tuple[str, str]:
    """The ports at both ends, in one order."""
    them = sorted(links, key=lambda link: natural(link.one.port))
    ends = [link.one.port for link in them], [link.other.port or "(port unknown)" for link in them]
    return ", ".join(compact(ends[0])), ", ".join(compact(ends[1]))


def _ports(names: Iterable[str]) -> str:
    return ", ".join(compact(sorted(names, key=natural)))
