"""Platform Arista EOS: command lines of `show running-config`. Pure.

EOS sets the drop precedence by DSCP (`drop-precedence`) and has separate ECN thresholds, so it can
express all of an intent but per-packet spraying. Source: Arista's AVD templates and RoCE guides;
`uc-tx-queue` is the name on Trident, Tomahawk and XP chips.

EOS prints code points of one class on one line, and no defaults: reading adds them. A queue is
strict unless it has `no priority`, so `priority strict` has no rule. No queue is strict below one
with `no priority`.

Flow control is configured on a port or in its profile; EOS computes the headroom.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from switchcfg.intent.intent import QUEUES, Device, Intent, PortGroup
from switchcfg.intent.lossless import Lossless
from switchcfg.plan.account import Reading
from switchcfg.plan.kept import left_out
from switchcfg.plan.queues import Abilities, Layout, Queue, lay_out
from switchcfg.plan.state import Place, State
from switchcfg.platforms.commands import CommandPlatform, number_of
from switchcfg.platforms.eos_grammar import GRAMMAR
from switchcfg.platforms.platform import group_name, is_ours
from switchcfg.platforms.rule import SEPARATOR
from switchcfg.platforms.weighted import UNMARKED, below, in_words, percents

KBYTE: Final = 1000  # bytes of a kbyte of EOS
# EOS hashes layer 4 by default. Chips have headroom for two lossless classes.
ABLE: Final = Abilities(curves=3, own_mark=True, spray=("hash",), lossless=2)

# Defaults of the switch ("Quality of Service" of the EOS manual)
DEFAULT_TC: Final = (1, 0, 2, 3, 4, 5, 6, 7)  # traffic class by the first 3 bits of a code point
DEFAULTS: Final[State] = {
    **{Place("dscp", str(dscp), ""): str(DEFAULT_TC[dscp >> 3]) for dscp in range(64)},
    **{Place("traffic-class", str(tc), ""): str(tc) for tc in range(QUEUES)},
}
_PORT: Final = re.compile(r"(Ethernet|Port-Channel)[\d/]+")


# What a profile does to the whole port, by kind of line
WHOLE_PORT: Final = {
    "profile shape": "the shaper of the port",
    "profile policy": "its service policy",
    "profile cos": "its default CoS",
    "profile code point": "its default code point",
}


class Eos(CommandPlatform):
    """EOS 4.30 and later. A configuration session is committed as a whole."""

    name, able, grammar, mode = "eos", ABLE, GRAMMAR, "configure session"
    binds, points, classes = ("interface profile",), "dscp", "traffic-class"
    shared = (points, classes)
    marks, lists_ports = "queue ecn", True
    said, signs = "show running-config", r"^(hostname|interface|qos map|qos profile) \S"
    strange = (
        r"^(!Command:|version \d|feature \S+$|vdc |system qos|(class|policy)-map type queuing|nv |"
        r"set (system|interfaces|class-of-service) )"
    )
    message = r"^ *(banner \w+|comment)\n((?! *(banner|comment)\b).*\n)*? *EOF$"
    degraded = ("shares of the buffer: thresholds follow them, and the chip sets the limits",)

    def group(self, intent: Intent, group: PortGroup, layout: Layout) -> Mapping[Place, str]:
        return dict([*_maps(intent, layout), *_profile(intent, group, layout)])

    def read(self, text: str) -> State:
        found = super().read(text)
        none = [p for p in found if p.kind == "port" and not _PORT.fullmatch(p.name)]
        state = {**DEFAULTS, **{place: found[place] for place in found.keys() - set(none)}}
        return Reading.of(found, state)

    def defaults(self, present: State) -> State:
        return DEFAULTS

    def lacking(self, intent: Intent, device: Device) -> Iterator[str]:
        if not device.groups:
            return
        layout = lay_out(intent, device.groups[0], self.able)
        why = "EOS serves no strict queue below a weighted queue"
        yield from in_words(layout, below(layout), why)
        for each in layout.lossless:
            if each.priority == 0:
                yield UNMARKED.format(each.name)
            if each.cable:
                yield f"{each.name}: cable: EOS computes the headroom itself"

    def flow_controlled(self, present: State, port: str = "") -> Iterator[int]:
        return (queue for _, queue in _controlled(present, port))

    def protected(self, intent: Intent, present: State, port: str) -> Iterator[int]:
        for profile, queue in _controlled(present, port):
            if not is_ours(intent, profile):
                yield queue

    def conflicts(self, intent: Intent, device: Device, present: State) -> Iterator[str]:
        """The code-point map is that of the switch, and other ports may have flow control, too."""
        theirs = set(self.protected(intent, present, ""))
        theirs -= {q for port in device.ports for q in self.protected(intent, present, port)}
        ways = self.queues(present).items()
        yield from left_out(
            intent, device.name, {dscp: queue for dscp, (_, queue) in ways if queue in theirs}
        )

    def lost(self, intent: Intent, theirs: str, present: State) -> str:
        """All that a kept queue has in a profile, its classification, and what the profile does to
        the whole port. Flow control on the intent's lossless priorities goes on in switchcfg's."""
        goes_on = {str(each.priority) for each in intent.lossless}
        found = [super().lost(intent, theirs, present)]
        for place, value in present.items():
            profile, *inside = place.name.split(SEPARATOR)
            if profile != theirs:
                continue
            if place.kind == "profile pfc" and inside[0] not in goes_on:
                return "flow control (configure it on the port itself)"
            if place.kind in WHOLE_PORT:
                found.append(f"{WHOLE_PORT[place.kind]} ({value})")
            if place.kind == "profile trust" and value != "dscp" and intent.keep.queues:
                found.append(f"classification by {value} for kept queues")
            if place.kind.startswith("queue ") and number_of(inside[0]) in intent.keep.queues:
                found.append(f"`{self.grammar.begins(place, value)}` in kept queue {inside[0]}")
        return next(filter(None, found), "")


def _controlled(present: State, port: str) -> Iterator[tuple[str, int]]:
    """(profile, queue) with flow control, of one port or (port "") of any. Profile "": it is
    configured on the port itself."""
    bound = present.get(Place("interface profile", port, ""), "")
    for place in present:
        owner, _, priority = place.name.rpartition(SEPARATOR)
        here = not port or (place.kind, owner) in (("interface pfc", port), ("profile pfc", bound))
        if here and place.kind in ("interface pfc", "profile pfc"):
            queue = present.get(Place("traffic-class", priority, ""), priority)
            yield owner if place.kind == "profile pfc" else "", number_of(queue)


def _maps(intent: Intent, layout: Layout) -> Iterator[tuple[Place, str]]:
    """Maps of the whole switch. Traffic class = transmit queue, on single-chip EOS platforms."""
    colour = layout.rank_of()
    for dscp, queue in layout.queue_of(intent).items():
        rank = colour.get(dscp, 0)
        yield Place("dscp", str(dscp), ""), f"{queue} {rank}" if rank else str(queue)
    for tc in range(QUEUES):
        yield Place("traffic-class", str(tc), ""), str(tc)


def _profile(intent: Intent, group: PortGroup, layout: Layout) -> Iterator[tuple[Place, str]]:
    name = group_name(intent, group)
    yield Place("profile trust", name, ""), "dscp"
    for queue in layout.queues:
        yield from _queue(f"{name}{SEPARATOR}{queue.index}", queue)
    if layout.lossless:
        yield Place("profile pfc mode", name, ""), "on"
    for each in layout.lossless:
        yield from _lossless(f"{name}{SEPARATOR}{each.priority}", each)
    for index, percent in percents(layout, below(layout)).items():
        yield Place("queue round robin", f"{name}{SEPARATOR}{index}", ""), ""
        yield Place("queue share", f"{name}{SEPARATOR}{index}", ""), str(percent)
    for port in group.ports:
        yield Place("interface profile", port, ""), name


def _queue(name: str, queue: Queue) -> Iterator[tuple[Place, str]]:
    if queue.mark:
        yield Place("queue ecn", name, ""), f"{_kbytes(*queue.mark)} 100 0"
    for band in queue.bands:
        if band.begin < queue.limit:  # else tail drop, which needs no line
            where = f"{name}{SEPARATOR}{band.rank}"
            yield Place("queue drop", where, ""), f"{_kbytes(band.begin, band.certain)} 100 0"


def _lossless(name: str, each: Lossless) -> Iterator[tuple[Place, str]]:
    """Lines of a lossless class. Priority = traffic class = queue, as in `_maps`."""
    yield Place("profile pfc", name, ""), ""
    if each.mark:
        yield Place("queue ecn", name, ""), f"{_kbytes(*each.mark)} 100 0"


def _kbytes(begin: int, certain: int) -> str:
    """Thresholds in kbytes from bytes; EOS requires 0 < first < second."""
    low = max(begin // KBYTE, 1)
    return f"{low} {max(certain // KBYTE, low + 1)}"
