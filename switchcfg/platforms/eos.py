"""Arista EOS: command lines as `show running-config` has them. Pure.

EOS colours by DSCP (`drop-precedence`) and has ECN thresholds of their own, so it can say all
of an intent but per-packet spraying. Source: Arista's AVD templates and its RoCE guides;
`uc-tx-queue` is the name on Trident, Tomahawk and XP chips.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from switchcfg.intent.intent import QUEUES, Intent, PortGroup
from switchcfg.plan.queues import Abilities, Layout, Queue
from switchcfg.plan.state import Place, State
from switchcfg.platforms.commands import CommandPlatform
from switchcfg.platforms.grammar import SEPARATOR, Grammar, Rule
from switchcfg.platforms.platform import group_name

KBYTE: Final = 1000  # bytes; what EOS calls kbytes
ABLE: Final = Abilities(curves=3, own_mark=True, spray=("hash",))  # it hashes layer 4 by itself

_PROFILE: Final = "qos profile {profile}"
_QUEUE: Final = (_PROFILE, "uc-tx-queue {queue}")
PFC: Final = "priority-flow-control priority {priority} no-drop"
_RANGE: Final = "minimum-threshold <min> kbytes maximum-threshold <max> kbytes"
GRAMMAR: Final = Grammar(
    rules=(
        Rule(
            "dscp",
            ("qos map dscp {dscp} to traffic-class <tc> drop-precedence <dp>",),
            "no qos map dscp {dscp}",
        ),
        Rule("dscp", ("qos map dscp {dscp} to traffic-class <tc>",), "no qos map dscp {dscp}"),
        Rule(
            "traffic-class",
            ("qos map traffic-class {tc} to tx-queue <queue>",),
            "no qos map traffic-class {tc} to tx-queue <queue>",
        ),
        Rule("profile trust", (_PROFILE, "qos trust <what>"), "no qos trust"),
        Rule("queue priority", (*_QUEUE, "priority <kind>"), "no priority"),
        Rule(
            "queue ecn",
            (*_QUEUE, f"random-detect ecn {_RANGE} max-mark-probability <most> weight <w>"),
            "no random-detect ecn",
        ),
        Rule(
            "queue drop",
            (
                *_QUEUE,
                f"random-detect drop drop-precedence {{dp}} {_RANGE} drop-probability <most> "
                "weight <w>",
            ),
            "no random-detect drop drop-precedence {dp}",
        ),
        # Read, never written: whose flow control it is, is not ours to say.
        Rule("profile pfc", (_PROFILE, PFC), f"no {PFC}"),
        Rule("interface pfc", ("interface {port}", PFC), f"no {PFC}"),
        Rule(
            "interface profile",
            ("interface {port}", "service-profile <profile>"),
            "no service-profile",
        ),
    ),
    indent=3,
)


class Eos(CommandPlatform):
    """EOS 4.30 and later, which commits a session as a whole."""

    name, able, grammar, mode = "eos", ABLE, GRAMMAR, "configure session"
    binds, points, classes = ("interface profile",), "dscp", "traffic-class"
    said, signs = "show running-config", r"^(hostname|interface|qos map|qos profile) \S"
    strange = (
        r"^(!Command:|version \d|feature \S+$|vdc |system qos|(class|policy)-map type queuing|nv )"
    )
    degraded = ("shares of the buffer: thresholds follow them, the limits stay the chip's",)

    def group(self, intent: Intent, group: PortGroup, layout: Layout) -> Mapping[Place, str]:
        return dict([*_maps(intent, layout), *_profile(intent, group, layout)])

    def flow_controlled(self, present: State, port: str) -> Iterator[int]:
        profile = present.get(Place("interface profile", port, ""), "")
        for place in present:
            owner, _, priority = place.name.rpartition(SEPARATOR)
            if (place.kind, owner) in (("interface pfc", port), ("profile pfc", profile)):
                yield int(priority) if priority.isdecimal() else 0


def _maps(intent: Intent, layout: Layout) -> Iterator[tuple[Place, str]]:
    """Of the whole switch. Traffic class = transmit queue, on every EOS platform of one chip."""
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
    for port in group.ports:
        yield Place("interface profile", port, ""), name


def _queue(name: str, queue: Queue) -> Iterator[tuple[Place, str]]:
    yield Place("queue priority", name, ""), "strict"
    if queue.mark:
        yield Place("queue ecn", name, ""), f"{_kbytes(*queue.mark)} 100 0"
    for band in queue.bands:
        if band.begin < queue.limit:  # else a full queue drops it without being told
            where = f"{name}{SEPARATOR}{band.rank}"
            yield Place("queue drop", where, ""), f"{_kbytes(band.begin, band.certain)} 100 0"


def _kbytes(begin: int, certain: int) -> str:
    """Two thresholds; EOS takes no zero, and the second above the first."""
    low = max(begin // KBYTE, 1)
    return f"{low} {max(certain // KBYTE, low + 1)}"
