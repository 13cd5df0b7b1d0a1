"""Judges a fabric: whether both ends of each link treat packets alike. Pure.

Ends may be of different platforms, so classes are compared by the code points that share them, not
by name. Only code points that the intent names or that an end pauses count: platforms differ in
their defaults for all others.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from switchcfg.fabric.wiring import Link, Wiring
from switchcfg.intent.intent import Intent
from switchcfg.intent.links import End
from switchcfg.model.values import DSCPS, UNKNOWN, PortModel, SwitchModel, listed

NOTHING: Final = "nothing"
_KINDS: Final = ("DSCP", "PCP")


@dataclass(frozen=True, slots=True)
class Facts:
    """The model of one device, and the MTU of its ports."""

    model: SwitchModel
    mtu: Mapping[str, int] = field(default_factory=dict)  # by port, without the Ethernet header


@dataclass(frozen=True, slots=True)
class Finding:
    """A difference between the two ends of a link."""

    link: Link
    subject: str  # "code points", "PFC", "trust", "MTU"
    what: str
    one: str  # at the first end
    other: str


@dataclass(frozen=True, slots=True)
class LosslessPath:
    """The links that pause packets of some code points by the same priorities at both ends."""

    dscp: tuple[int, ...]
    whole: int  # links
    breaks: tuple[str, ...]  # links and devices where the path is not lossless


@dataclass(frozen=True, slots=True)
class FabricVerdict:
    """The judgement of a fabric."""

    findings: tuple[Finding, ...] = ()
    lossless: tuple[LosslessPath, ...] = ()
    judged: int = 0  # links
    unjudged: tuple[str, ...] = ()  # links of which an end is not known

    @property
    def passes(self) -> bool:
        """Whether no end differs, and every lossless class is lossless on all judged links."""
        return not self.findings and not any(each.breaks for each in self.lossless)


def judge(intent: Intent, wiring: Wiring, facts: Mapping[str, Facts]) -> FabricVerdict:
    """The judgement of all links of which the configurations of both devices are known."""
    known, unjudged = list[Link](), list[str]()
    for link in wiring.links:
        why = _why_unjudged(intent, link, facts)
        if why:
            unjudged.append(f"{link}: {why}")
        else:
            known.append(link)
    named = _named(intent)
    findings = [each for link in known for each in _differences(link, facts, named)]
    return FabricVerdict(
        tuple(findings),
        tuple(_lossless(known, facts, named)),
        len(known),
        tuple(unjudged),
    )


def _why_unjudged(intent: Intent, link: Link, facts: Mapping[str, Facts]) -> str:
    for end in (link.one, link.other):
        if end.device not in facts:
            return f"the configuration of {end.device} is not known"
        if not end.port:
            return f"the port of {end.device} is not known"
        # The queues of a member of a port-channel may be those of the channel.
        if end.port not in (*intent.device(end.device).ports, *intent.keep.ports):
            return f"the intent does not name {end}"
    return ""


def _named(intent: Intent) -> tuple[int, ...]:
    """Code points that the intent names, also as kept."""
    found = {dscp for each in intent.classes for dscp in each.dscp} | intent.keep.dscp.keys()
    for each in intent.lossless:
        found |= {*each.dscp, *([] if each.cnp is None else [each.cnp])}
    return tuple(sorted(found))


def _port(facts: Mapping[str, Facts], end: End) -> PortModel:
    return facts[end.device].model.port(end.port)


def _differences(link: Link, facts: Mapping[str, Facts], named: Sequence[int]) -> Iterator[Finding]:
    one, other = _port(facts, link.one), _port(facts, link.other)
    points = _counted(one, other, named)
    groups = _classes(one, points), _classes(other, points)
    differ = {*groups[0]} ^ {*groups[1]}  # the classes that the other end does not have
    lost = [UNKNOWN in "".join(port[n].traffic_class for n in points) for port in (one, other)]
    if differ or any(lost):
        numbers = listed(sorted({n for each in differ for n in each} or points))
        here, there = (
            "not known" if unknown else _in_words(classes, differ)
            for classes, unknown in zip(groups, lost, strict=True)
        )
        yield Finding(link, "code points", f"classes of DSCP {numbers}:", here, there)
    paused = {n: (_pauses(one, n), _pauses(other, n)) for n in points}
    for (here, there), points in _by_value(paused):
        if here != there:
            yield Finding(link, "PFC", f"DSCP {listed(points)} pause by priority", here, there)
    if (here := _trust(one)) != (there := _trust(other)):
        yield Finding(link, "trust", "packets are classified by", here, there)
    mine, theirs = (facts[end.device].mtu.get(end.port, 0) for end in (link.one, link.other))
    if mine and theirs and mine != theirs:
        yield Finding(link, "MTU", "bytes", str(mine), str(theirs))


def _counted(one: PortModel, other: PortModel, named: Sequence[int]) -> list[int]:
    """The code points that count on a link."""
    paused = {n for n in range(DSCPS) if one[n].pauses or other[n].pauses}
    return sorted(paused.union(named))


def _by_value(
    found: Mapping[int, tuple[str, str]],
) -> Iterator[tuple[tuple[str, str], list[int]]]:
    groups: dict[tuple[str, str], list[int]] = {}
    for number, value in found.items():
        groups.setdefault(value, []).append(number)
    yield from groups.items()


def _classes(port: PortModel, points: Sequence[int]) -> list[tuple[int, ...]]:
    """The code points of `points` that share a class, class by class."""
    found: dict[str, list[int]] = {}
    for number in points:
        found.setdefault(port[number].traffic_class, []).append(number)
    return [tuple(each) for each in found.values()]


def _in_words(classes: Sequence[tuple[int, ...]], differ: Collection[tuple[int, ...]]) -> str:
    return " | ".join(listed(each) for each in classes if each in differ) or "others"


def _pauses(port: PortModel, number: int) -> str:
    return ", ".join(sorted(port[number].pauses)) or NOTHING


def _trust(port: PortModel) -> str:
    """The kinds of code points that classify packets on a port. By a default class alone, a
    platform may say `port`, so one code point of a kind is enough."""
    kinds = {each.by.split(" ")[0].rstrip(";,") for each in port}
    return next((kind for kind in _KINDS if kind in kinds), "the port")


def _lossless(
    links: Sequence[Link], facts: Mapping[str, Facts], named: Sequence[int]
) -> Iterator[LosslessPath]:
    """For the code points that any end of a link pauses: whether all links do, and all ports of
    each device by the same priority. Equal verdicts share a value."""
    ends = [end for link in links for end in (link.one, link.other)]
    points = {n for end in ends for n in range(DSCPS) if _port(facts, end)[n].pauses}
    found: dict[tuple[int, tuple[str, ...]], list[int]] = {}
    for number in sorted(points):
        broken = [link for link in links if not _is_lossless(link, facts, number)]
        texts = [f"{link}: {_where(link, facts, number)}" for link in broken]
        texts += _inside(ends, facts, number)
        found.setdefault((len(links) - len(broken), tuple(texts)), []).append(number)
    for (whole, breaks), numbers in found.items():
        yield LosslessPath(tuple(numbers), whole, breaks)


def _is_lossless(link: Link, facts: Mapping[str, Facts], number: int) -> bool:
    one, other = (_port(facts, end)[number].pauses for end in (link.one, link.other))
    return bool(one) and one == other


def _where(link: Link, facts: Mapping[str, Facts], number: int) -> str:
    """The end that does not pause, or both priorities."""
    said = {end: _pauses(_port(facts, end), number) for end in (link.one, link.other)}
    without = [str(end) for end, how in said.items() if how == NOTHING]
    if without:
        return f"{' and '.join(without)} without PFC"
    return " and ".join(f"{end} by priority {how}" for end, how in said.items())


def _inside(ends: Sequence[End], facts: Mapping[str, Facts], number: int) -> Iterator[str]:
    """Devices whose ports pause a code point by different priorities."""
    ways: dict[str, dict[str, End]] = {}
    for end in ends:
        how = _pauses(_port(facts, end), number)
        if how != NOTHING:
            ways.setdefault(end.device, {}).setdefault(how, end)
    for device, ports in ways.items():
        if len(ports) > 1:
            said = (f"{end.port} by priority {how}" for how, end in ports.items())
            yield f"{device}: {' and '.join(said)}"
