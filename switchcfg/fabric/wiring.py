"""The links of a fabric, from the intent and from LLDP, as one value. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from switchcfg.fabric.answers import Heard
from switchcfg.intent.intent import Intent
from switchcfg.intent.known import KNOWN
from switchcfg.intent.links import End

INTENT: Final = "the intent"
BY_LLDP: Final = "LLDP on"  # and the name of the device that hears its neighbour


@dataclass(frozen=True, slots=True, order=True)
class Link:
    """A link between two devices of the intent."""

    one: End
    other: End
    by: tuple[str, ...]  # who says so

    def __str__(self) -> str:
        return f"{self.one} - {self.other}"


@dataclass(frozen=True, slots=True)
class Wiring:
    """The links of a fabric."""

    links: tuple[Link, ...] = ()
    outside: tuple[tuple[End, str], ...] = ()  # a port, and its neighbour outside of the intent
    alone: tuple[End, ...] = ()  # ports of the intent without a neighbour
    contradictions: tuple[str, ...] = ()
    one_sided: tuple[str, ...] = ()  # links of which LLDP tells one end only


Neighbours = dict[End, dict[End, dict[str, None]]]  # a port -> the port at its other end -> by whom


def wiring(intent: Intent, heard: Mapping[str, Sequence[Heard]]) -> Wiring:
    """The links of the intent's devices. `heard`: the answers of those that were asked.

    Where the intent and LLDP, or the LLDP of two devices, disagree, both links are in the value,
    and the contradiction is named.
    """
    heard = {each.name: heard[each.name] for each in intent.devices if each.name in heard}
    names = _names(intent)
    facts: Neighbours = {}
    for one, other in intent.links:
        _add(facts, one, other, INTENT)
    for device, rows in heard.items():
        for each in rows:
            far = _far_end(intent, names, heard, device, each)
            _add(facts, End(device, each.port), far, f"{BY_LLDP} {device}")
    _join_unknown(facts)
    ours = {device.name for device in intent.devices}
    return Wiring(
        tuple(sorted(_links(facts, ours))),
        tuple(sorted(_outside(facts, ours))),
        tuple(_alone(intent, facts)),
        tuple(_contradictions(facts, ours)),
        tuple(_one_sided(facts, ours, heard)),
    )


def _names(intent: Intent) -> dict[str, str]:
    """Names that LLDP may tell -> the device."""
    found: dict[str, str] = {}
    for device in intent.devices:
        for name in filter(None, (device.name, device.address)):
            found.setdefault(name.casefold(), device.name)
            if not name.replace(".", "").isdecimal():
                found.setdefault(name.casefold().partition(".")[0], device.name)
    return found


def _known(names: Mapping[str, str], system: str) -> str:
    """The device of this LLDP system name; "": it is not in the intent."""
    name = system.casefold()
    return names.get(name) or names.get(name.partition(".")[0], "")


def _far_end(
    intent: Intent,
    names: Mapping[str, str],
    heard: Mapping[str, Sequence[Heard]],
    device: str,
    each: Heard,
) -> End:
    """The other end of a link, as far as LLDP tells it."""
    far = _known(names, each.system)
    if not far:
        return End(each.system or "?", next(iter(each.ports), ""))
    known = intent.device(far)
    shape = KNOWN[known.platform].ports
    named = {*known.ports, *intent.keep.ports}  # a description may look like a port of Linux
    ports = sorted(filter(shape.matches, each.ports), key=lambda port: port not in named)
    hears = [
        back.port
        for back in heard.get(far, ())
        if _known(names, back.system) == device and each.port in back.ports
    ]
    # The far device's own name of its port is better than a description of it.
    both = [port for port in ports if port in hears]
    return End(far, next(iter((*both, *(hears if len(hears) == 1 else []), *ports)), ""))


def _add(facts: Neighbours, one: End, other: End, by: str) -> None:
    facts.setdefault(one, {}).setdefault(other, {})[by] = None
    if other.port:
        facts.setdefault(other, {}).setdefault(one, {})[by] = None


def _join_unknown(facts: Neighbours) -> None:
    """An end whose port is not known is the same as one of the same device whose port is."""
    for ends in facts.values():
        for end in [end for end in ends if not end.port]:
            for other in ends:
                if other.device == end.device and other.port:
                    ends[other] |= ends.pop(end)
                    break


def _links(facts: Neighbours, ours: set[str]) -> Iterator[Link]:
    for one, ends in facts.items():
        for other, by in ends.items():
            if {one.device, other.device} <= ours and (one < other or not other.port):
                yield Link(one, other, tuple(by))


def _outside(facts: Neighbours, ours: set[str]) -> Iterator[tuple[End, str]]:
    for one, ends in facts.items():
        for other in ends:
            if one.device in ours and other.device not in ours:
                yield one, f"{other.device} {other.port}".rstrip()


def _alone(intent: Intent, facts: Neighbours) -> Iterator[End]:
    """LLDP is told by members of a port-channel, so a channel itself has no neighbour."""
    for device in intent.devices:
        names = KNOWN[device.platform].ports
        for port in device.ports:
            if End(device.name, port) not in facts and not names.is_channel(port):
                yield End(device.name, port)


def _contradictions(facts: Neighbours, ours: set[str]) -> Iterator[str]:
    """Ports with two neighbours of which one is a device of the intent, or is named there.

    Several neighbours outside of the intent are usual: a host and its management controller.
    """
    for one, ends in sorted(facts.items()):
        if one.device not in ours:
            continue
        if any(end.device == one.device for end in ends):
            yield f"{one}: hears {one.device} itself: a loop, or two switches of this name"
            continue
        named = {end for end, by in ends.items() if end.device in ours or INTENT in by}
        others = {str(end) if end.device in ours else _host(end.device) for end in ends}
        if named and len(others) > 1:
            told = (f"{end} by {', '.join(by)}" for end, by in sorted(ends.items()))
            yield f"{one}: is linked to {'; and to '.join(told)}"


def _host(name: str) -> str:
    """A neighbour outside of the intent, for comparison: LLDP may add its domain."""
    return name.casefold().partition(".")[0]


def _one_sided(
    facts: Neighbours, ours: set[str], heard: Mapping[str, Sequence[Heard]]
) -> Iterator[str]:
    """Links that one asked device hears, and the other asked device does not."""
    for link in sorted(_links(facts, ours)):
        for near, far in ((link.one, link.other), (link.other, link.one)):
            by = set(link.by)
            if far.device in heard and by == {f"{BY_LLDP} {near.device}"}:
                yield f"{link}: {far.device} does not hear {near.device} there"
