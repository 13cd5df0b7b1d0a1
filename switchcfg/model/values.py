"""The treatment of every code point on every port of a switch, and the difference of two. Pure.

A model is computed from a whole configuration by code of its own: it shares no table and no reader
with the planner, so that it can judge a plan. Values are text, in the words of the platform: two
treatments are equal if and only if all their respects are.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from switchcfg.plan.masking import masked

DSCPS: Final = 64  # six bits (RFC 2474)
PCPS: Final = 8  # three bits of a VLAN tag (IEEE 802.1Q)
# Code points by name (RFC 2474, RFC 2597, RFC 3246)
POINT_NAMES: Final = {
    "ef": 46,
    **{f"cs{n}": 8 * n for n in range(1, 8)},
    **{f"af{c}{d}": 8 * c + 2 * d for c in range(1, 5) for d in range(1, 4)},
}
NONE: Final = "none"
EITHER: Final = " or "  # between the queues that packets of one code point may go to
UNKNOWN: Final = "unknown"  # a queue or class that the model cannot tell


@dataclass(frozen=True, slots=True)
class PauseBuffer:
    """The configured buffer for packets that arrive after a pause. 0: not configured."""

    size: int  # bytes
    metres: int = 0  # of cable
    rate: int = 0  # bit/s
    frame: int = 0  # bytes of the largest frame


@dataclass(frozen=True, slots=True)
class Treatment:
    """The treatment of the packets of one code point on one port. "": nothing is configured."""

    by: str = ""  # what classifies them: "DSCP", "PCP", "port" ...
    traffic_class: str = ""
    queue: str = ""
    group: str = ""  # priority group: the ingress buffer
    headroom: str = ""  # buffer of the group
    buffer: str = ""  # buffer and limit of the queue
    pfc: str = ""  # flow control
    mark: str = ""  # ECN and early drops
    share: str = ""  # rank and weight
    shaper: str = ""
    rewrite: str = ""  # of code points on the way out
    unknown: str = ""  # lines that the model does not understand
    default: bool = field(default=False, compare=False)  # by default, no line classifies them
    classifier: str = field(default="", compare=False)  # name of the map or policy; "": none
    rank: int | None = field(default=None, compare=False)  # of a strict queue: the highest is first
    weight: int = field(default=0, compare=False)  # of another queue; 0: not configured
    pausing: frozenset[str] = field(default=frozenset(), compare=False)  # objects that set `pfc`
    cables: frozenset[str] = field(default=frozenset(), compare=False)  # set `headroom` by length
    pauses: frozenset[str] = field(default=frozenset(), compare=False)  # PFC priorities, if on
    pause_buffer: PauseBuffer | None = field(default=None, compare=False)  # None: not known


RESPECTS: Final = tuple(each.name for each in fields(Treatment) if each.compare)


@dataclass(frozen=True, slots=True)
class Point:
    """A code point: a DSCP of IP packets, or a PCP of frames with a VLAN tag."""

    kind: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind} {self.number}"


POINTS: Final = (
    *(Point("DSCP", number) for number in range(DSCPS)),
    *(Point("PCP", number) for number in range(PCPS)),
)
PortModel = tuple[Treatment, ...]  # in the order of POINTS


@dataclass(frozen=True, slots=True)
class SwitchModel:
    """All ports of a switch. `other`: a port without lines of its own. `notes`: effects on packets
    that no treatment has, by port; "": of the whole switch."""

    ports: Mapping[str, PortModel]
    other: PortModel
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def port(self, name: str) -> PortModel:
        """The treatments on a port."""
        return self.ports.get(name, self.other)


@dataclass(frozen=True, slots=True)
class Difference:
    """One respect of one code point that two models treat differently on a port."""

    port: str
    point: Point
    respect: str
    before: str
    after: str


def differences(before: SwitchModel, after: SwitchModel) -> Iterator[Difference]:
    """All differences, by port, code point and respect."""
    for port in [*before.ports, *(each for each in after.ports if each not in before.ports)]:
        for point, was, then in zip(POINTS, before.port(port), after.port(port), strict=True):
            if was != then:
                yield from between(port, point, was, then)


def between(port: str, point: Point, was: Treatment, then: Treatment) -> Iterator[Difference]:
    """The respects in which two treatments differ."""
    for respect in RESPECTS:
        old, new = getattr(was, respect), getattr(then, respect)
        if old != new:
            yield Difference(port, point, respect, masked(old), masked(new))


def grouped(found: Iterable[Difference]) -> Iterator[str]:
    """Lines for output: equal differences of code points share a line."""
    lines: dict[tuple[str, str, str, str, str], list[int]] = {}
    for each in found:
        key = (each.port, each.point.kind, each.respect, each.before, each.after)
        lines.setdefault(key, []).append(each.point.number)
    for (port, kind, respect, before, after), numbers in lines.items():
        what = f"{port}: {kind} {listed(numbers)}: {respect.replace('_', ' ')}"
        yield f"{what}: {before or NONE} -> {after or NONE}"


def listed(numbers: Sequence[int]) -> str:
    """Numbers in ascending order, as ranges: `0-7, 24`."""
    parts: list[list[int]] = []
    for each in numbers:
        if parts and parts[-1][-1] == each - 1:
            parts[-1][1:] = [each]
        else:
            parts.append([each])
    return ", ".join("-".join(map(str, part)) for part in parts)


@dataclass(frozen=True, slots=True)
class Way:
    """The classification of one code point."""

    by: str
    traffic_class: str
    default: bool = False
    rewrite: str = ""
    unknown: str = ""
    classifier: str = ""
    pfc: str = ""  # flow control by code point, of a class that has it


def port_model(ways: Sequence[Way], treat: Callable[[str], Treatment]) -> PortModel:
    """The model of a port, from the ways of POINTS and the treatment of a traffic class. Equal
    ways share one value."""
    made: dict[Way, Treatment] = {}
    for way in ways:
        if way not in made:
            base = either([treat(each) for each in way.traffic_class.split(EITHER)])
            made[way] = replace(
                base,
                by=way.by,
                default=way.default,
                classifier=way.classifier,
                pfc=joined(base.pfc, base.pfc and way.pfc),
                rewrite=joined(base.rewrite, way.rewrite),
                unknown=joined(base.unknown, way.unknown),
            )
    return tuple(made[way] for way in ways)


def either(found: Sequence[Treatment]) -> Treatment:
    """The treatment of packets that are treated in one of these ways."""
    first = found[0]
    if all(each == first for each in found):
        return first
    said: dict[str, Any] = {}
    for respect in RESPECTS:
        ways = dict.fromkeys(getattr(each, respect) for each in found)
        several = EITHER.join(way or NONE for way in ways)
        said[respect] = several if len(ways) > 1 else getattr(first, respect)
    pausing = frozenset[str]().union(*(each.pausing for each in found))
    pauses = frozenset[str]().union(*(each.pauses for each in found))
    return Treatment(**said, pausing=pausing, pauses=pauses)


def first_number(text: str) -> int:
    """The first number in a text; 0: there is none."""
    found = re.search(r"\d+", text)
    return int(found[0]) if found else 0


def joined(*parts: str) -> str:
    """The parts that say something, as one text."""
    return "; ".join(dict.fromkeys(filter(None, parts)))
