"""Cisco NX-OS on Nexus 9000: command lines as `show running-config` has them. Pure.

One curve per queue, shared by dropping and ECN; strict-priority queues must be the highest
and adjacent; queuing policies are disruptive. Source: Nexus 9000 QoS guides 10.x. That all
queues but the last may be strict at levels of their own depends on the queuing template.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from switchcfg.intent.intent import QUEUES, Intent, PortGroup
from switchcfg.plan.queues import Abilities, Layout, Queue
from switchcfg.plan.state import Change, Place, State, natural
from switchcfg.platforms.commands import CommandPlatform, number_of
from switchcfg.platforms.grammar import SEPARATOR, Grammar, Rule
from switchcfg.platforms.platform import group_name
from switchcfg.platforms.several import members

ABLE: Final = Abilities(curves=1, own_mark=False, spray=("hash",))  # it hashes layer 4 by itself

_CLASS: Final = "class-map type qos match-any {class}"
_MARK: Final = ("policy-map type qos {policy}", "class {class}")
_QUEUE: Final = ("policy-map type queuing {policy}", "class type queuing {class}")
_PORT: Final = "interface {port}"
_RANGE: Final = (
    "minimum-threshold <min> bytes maximum-threshold <max> bytes drop-probability <most>"
)
_NETWORK: Final = ("policy-map type network-qos {policy}", "class type network-qos {class}")
UNITS: Final = {"kbytes": 1000, "mbytes": 1_000_000}
_SIZE: Final = re.compile(r"(\d{1,9}) (kbytes|mbytes)")
_ETHERNET: Final = re.compile(r"(Ethernet|port-channel)[\d/]+")


def _spell(line: str) -> str:
    """Thresholds in bytes, code points one by one in their order."""
    for head in ("match dscp ", "match cos "):
        if line.startswith(head):
            return head + ",".join(sorted(members(line.removeprefix(head)), key=natural))
    if line.startswith(("random-detect minimum", "queue-limit ")):
        return _SIZE.sub(lambda hit: f"{int(hit[1]) * UNITS[hit[2]]} bytes", line)
    return line


GRAMMAR: Final = Grammar(
    rules=(
        Rule(
            "class match",
            (_CLASS, "match dscp <dscps>"),
            "no match dscp <dscps>",
            adds=True,
            joins=True,
        ),
        Rule("mark group", (*_MARK, "set qos-group <group>"), "no set qos-group <group>"),
        Rule("queue priority", (*_QUEUE, "priority level <level>"), "no priority level <level>"),
        Rule(
            "queue bandwidth",
            (*_QUEUE, "bandwidth remaining percent <percent>"),
            "no bandwidth remaining percent <percent>",
        ),
        Rule(
            "queue detect",
            (*_QUEUE, f"random-detect {_RANGE} weight <w> <ecn>"),
            "no random-detect",
        ),
        Rule("queue limit", (*_QUEUE, "queue-limit <limit> bytes"), "no queue-limit <limit> bytes"),
        # Read, never written: what others have.
        Rule("queue marks", (*_QUEUE, "random-detect threshold <how> ecn"), ""),
        Rule(
            "all match",
            ("class-map type qos match-all {class}", "match dscp <dscps>"),
            "",
            joins=True,
        ),
        Rule("cos match", (_CLASS, "match cos <cos>"), "", joins=True),
        Rule(
            "cos match", ("class-map type qos match-all {class}", "match cos <cos>"), "", joins=True
        ),
        Rule("class group", ("class-map type network-qos {class}", "match qos-group <group>"), ""),
        Rule("class pause", (*_NETWORK, "pause pfc-cos <cos>"), ""),
        Rule("class pause", (*_NETWORK, "pause no-drop"), ""),
        Rule("system network", ("system qos", "service-policy type network-qos <policy>"), ""),
        Rule("system queue", ("system qos", "service-policy type queuing output <policy>"), ""),
        Rule("system mark", ("system qos", "service-policy type qos input <policy>"), ""),
        Rule("interface pfc", (_PORT, "priority-flow-control mode <mode>"), ""),
        Rule("port", (_PORT,), ""),
        Rule(
            "interface mark",
            (_PORT, "service-policy type qos input <policy>"),
            "no service-policy type qos input <policy>",
            adds=True,
        ),
        Rule(
            "interface queue",
            (_PORT, "service-policy type queuing output <policy>"),
            "no service-policy type queuing output <policy>",
            adds=True,
        ),
    ),
    indent=2,
    spell=_spell,
)


class Nxos(CommandPlatform):
    """NX-OS 10.2 and later."""

    name, able, grammar, mode = "nxos", ABLE, GRAMMAR, "configure"
    binds = ("interface mark", "interface queue")
    marks, lists_ports = "queue detect", True
    said = "show running-config"
    signs = (
        r"^(hostname|switchname|feature|version|interface|(class|policy)-map type) \S|^system qos"
    )
    strange = r"^(! (device|Command): |qos (map|profile) |vrf instance |transceiver |nv )"
    degraded = ("more than one strict level needs a queuing template that has them",)

    def group(self, intent: Intent, group: PortGroup, layout: Layout) -> Mapping[Place, str]:
        return dict([*_marking(intent, layout), *_queuing(intent, group, layout)])

    def read(self, text: str) -> State:
        found = super().read(text)
        return {
            place: value
            for place, value in found.items()
            if place.kind != "port" or _ETHERNET.fullmatch(place.name)
        }

    def flow_controlled(self, present: State, port: str = "") -> Iterator[int]:
        """Where a port does not say `off`, its neighbour may turn it on (DCBX)."""
        if present.get(Place("interface pfc", port, "")) == "off":
            return
        active = present.get(Place("system network", "", ""), "")
        for place, cos in present.items():
            policy, _, name = place.name.partition(SEPARATOR)
            if place.kind == "class pause" and policy == active:
                group = present.get(Place("class group", name, ""), "")
                yield number_of(group or (name if name[-1:].isdigit() else cos))

    def marked(self, present: State, profile: str) -> Iterator[int]:
        for place in present:
            name, *queue = place.name.split(SEPARATOR)
            if name == profile and place.kind in {"queue marks", "queue detect"}:
                yield number_of(queue[0])

    def inherited(self, present: State, kind: str) -> str:
        policy = present.get(Place(kind.replace("interface", "system"), "", ""), "")
        return "" if policy.startswith("default-") else policy

    def lost(self, intent: Intent, theirs: str, present: State) -> str:
        return super().lost(intent, theirs, present) or next(
            _kept_ways(intent, theirs, present), ""
        )

    def disrupts(self, changes: Sequence[Change]) -> tuple[str, ...]:
        for change in changes:
            if change.place.kind == "interface queue":
                return (f"all ports of the type of {change.place.name} lose packets for a moment",)
        return ()


def _kept_ways(intent: Intent, policy: str, present: State) -> Iterator[str]:
    """What a policy sends to kept queues and ours would not."""
    for place, group in present.items():
        name, *below = place.name.split(SEPARATOR)
        if (place.kind, name) != ("mark group", policy) or number_of(group) not in (
            intent.keep.queues
        ):
            continue
        for kind in ("class match", "all match", "cos match"):
            what = present.get(Place(kind, below[0], ""), "")
            for each in what.split(",") if what else ():
                point = int(each) if kind != "cos match" and each.isdecimal() else -1
                if intent.keep.dscp.get(point) != number_of(group):
                    unit = "CoS" if kind == "cos match" else "code point"
                    yield f"{unit} {each} in kept queue {group}"


def _marking(intent: Intent, layout: Layout) -> Iterator[tuple[Place, str]]:
    """DSCP -> qos-group = queue. The rest falls through to the system's own last class."""
    points: dict[int, list[int]] = {}
    for dscp, queue in sorted(layout.queue_of(intent).items()):
        if queue != layout.rest:
            points.setdefault(queue, []).append(dscp)
    last = f"{intent.prefix}{SEPARATOR}class-default"
    yield Place("mark group", last, ""), str(layout.rest)
    for queue, dscps in points.items():
        name = f"{intent.prefix}-Q{queue}"
        yield Place("class match", name, ""), ",".join(map(str, dscps))
        yield Place("mark group", f"{intent.prefix}{SEPARATOR}{name}", ""), str(queue)


def _queuing(intent: Intent, group: PortGroup, layout: Layout) -> Iterator[tuple[Place, str]]:
    name = f"{group_name(intent, group)}-OUT"
    for queue in layout.queues:
        yield from _queue(f"{name}{SEPARATOR}{_class(queue.index)}", queue)
    for port in group.ports:
        yield Place("interface mark", port, ""), intent.prefix
        yield Place("interface queue", port, ""), name


def _class(index: int) -> str:
    """The names that the system gives its eight queues."""
    return f"c-out-8q-q{index}" if index else "c-out-8q-q-default"


def _queue(name: str, queue: Queue) -> Iterator[tuple[Place, str]]:
    if queue.index:
        yield Place("queue priority", name, ""), str(QUEUES - queue.index)
    else:
        yield Place("queue bandwidth", name, ""), "100"  # of what the strict ones leave
    if queue.mark:
        begin, certain = queue.mark
        yield Place("queue detect", name, ""), f"{begin} {certain} 100 0 ecn"
    yield Place("queue limit", name, ""), str(queue.limit)
