"""Platform Cisco NX-OS on Nexus 9000: command lines of `show running-config`. Pure.

A queue has one curve for drops and ECN, unless `non-ecn` sets another for Not-ECT packets.
Strict-priority queues must be the highest and adjacent; queuing policies are disruptive. Source:
Nexus 9000 QoS guides 10.x; for `random-detect non-ecn` the command reference 9.3(x), "R Commands".
Whether all queues but the last can have separate strict levels depends on the queuing template.

A lossless class belongs to the network-qos policy, of which the switch has one; a port has flow
control where its mode is on. NX-OS provides headroom for cables of up to 100 m.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from switchcfg.errors import CannotExpress
from switchcfg.intent.intent import QUEUES, Device, Intent, PortGroup
from switchcfg.plan.queues import Abilities, Layout, Queue, lay_out
from switchcfg.plan.state import Change, Place, State, natural
from switchcfg.platforms.commands import CommandPlatform, number_of
from switchcfg.platforms.grammar import SEPARATOR, Grammar, Rule
from switchcfg.platforms.name_ranges import members
from switchcfg.platforms.platform import Fit, GivenBack, Rendered, group_name, is_ours
from switchcfg.platforms.weighted import below, in_words, percents

# NX-OS hashes layer 4 by default. Chips have headroom for two lossless classes.
ABLE: Final = Abilities(curves=1, own_mark=False, spray=("hash",), bare_curve=True, lossless=2)
MTU: Final = 9216  # bytes; a port's maximum, as in all of Cisco's RoCE guides
FAR: Final = 100  # metres of cable beyond which headroom must be configured

_CLASS: Final = "class-map type qos match-any {class}"
_MARK: Final = ("policy-map type qos {policy}", "class {class}")
_QUEUE: Final = ("policy-map type queuing {policy}", "class type queuing {class}")
_PORT: Final = "interface {port}"
_RANGE: Final = (
    "minimum-threshold <min> bytes maximum-threshold <max> bytes drop-probability <most>"
)
_SYSTEM: Final = Place("system network", "", "")
_NETWORK: Final = ("policy-map type network-qos {policy}", "class type network-qos {class}")
UNITS: Final = {"kbytes": 1000, "mbytes": 1_000_000}
_SIZE: Final = re.compile(r"(\d{1,9}) (kbytes|mbytes)")
_ETHERNET: Final = re.compile(r"(Ethernet|port-channel)[\d/]+")


def _spell(line: str) -> str:
    """A line with thresholds in bytes, and code points listed one by one in numeric order."""
    for head in ("match dscp ", "match cos "):
        if line.startswith(head):
            return head + ",".join(sorted(members(line.removeprefix(head)), key=natural))
    if line.startswith("pause ") and " pfc-cos " in line:  # with or without a buffer size
        return f"pause pfc-cos {line.rpartition(' ')[2]}"
    if line.startswith(("random-detect minimum", "random-detect non-ecn", "queue-limit ")):
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
        Rule(
            "queue bare",
            (*_QUEUE, f"random-detect non-ecn {_RANGE}"),
            f"no random-detect non-ecn {_RANGE}",
        ),
        Rule("queue limit", (*_QUEUE, "queue-limit <limit> bytes"), "no queue-limit <limit> bytes"),
        Rule("class mtu", (*_NETWORK, "mtu <bytes>"), "no mtu <bytes>"),
        Rule("class pause", (*_NETWORK, "pause pfc-cos <cos>"), "no pause pfc-cos <cos>"),
        # Foreign lines: read, never written.
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
        Rule("class pause", (*_NETWORK, "pause no-drop"), ""),
        Rule(
            "system network",
            ("system qos", "service-policy type network-qos <policy>"),
            "no service-policy type network-qos <policy>",
            adds=True,
        ),
        Rule("system queue", ("system qos", "service-policy type queuing output <policy>"), ""),
        Rule("system mark", ("system qos", "service-policy type qos input <policy>"), ""),
        Rule(
            "interface pfc",
            (_PORT, "priority-flow-control mode <mode>"),
            "no priority-flow-control mode <mode>",
        ),
        Rule("interface pfc", (_PORT, "priority-flow-control mode <mode> <how>"), ""),  # foreign
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

    def render(self, intent: Intent, device: Device) -> Rendered:
        for each in intent.lossless:
            if each.priority == 0:
                why = "priority 0 is that of its default class, which drops"
            elif each.cable > FAR:
                why = f"a cable of {each.cable}m needs a pause buffer, as more than {FAR}m do"
            else:
                continue
            raise CannotExpress(
                f"{device.name}: lossless: {each.name}: nxos: {why}: give this device an intent "
                f"without it"
            )
        return super().render(intent, device)

    def group(self, intent: Intent, group: PortGroup, layout: Layout) -> Mapping[Place, str]:
        queuing = _queuing(intent, group, layout)
        return dict([*_marking(intent, layout), *queuing, *_network(intent, group, layout)])

    def lacking(self, intent: Intent, device: Device) -> Iterator[str]:
        layout = lay_out(intent, device.groups[0], self.able)
        yield from in_words(layout, below(layout), "strict queues of NX-OS are the highest")
        for each in layout.lossless:
            yield f"{each.name}: queue {each.priority} drops nothing on all ports with flow control"

    def read(self, text: str) -> State:
        found = super().read(text)
        return {
            place: value
            for place, value in found.items()
            if place.kind != "port" or _ETHERNET.fullmatch(place.name)
        }

    def flow_controlled(self, present: State, port: str = "") -> Iterator[int]:
        """As the base class. Unless a port's mode is `off`, its neighbour may turn it on (DCBX)."""
        if present.get(Place("interface pfc", port, "")) == "off":
            return
        for queue, _ in _pauses(present, present.get(_SYSTEM, "")):
            yield queue

    def protected(self, intent: Intent, present: State, port: str) -> Iterator[int]:
        if not is_ours(intent, present.get(_SYSTEM, "")):
            yield from self.flow_controlled(present, port)

    def conflicts(self, intent: Intent, device: Device, present: State) -> Iterator[str]:
        """As the base class: ports with mode `off`, and the switch's one network-qos policy, which
        switchcfg's would replace."""
        theirs = present.get(_SYSTEM, "")
        if not intent.lossless:
            return
        for port in device.ports:
            if present.get(Place("interface pfc", port, ""), "") == "off":
                yield f"lossless: {port} has `priority-flow-control mode off`: take that off first"
        if not theirs or theirs.startswith("default-") or is_ours(intent, theirs):
            return
        what = f"kept: {device.name} has the network-qos policy {theirs!r}"
        if theirs not in intent.keep.replaces:
            yield f"{what}, which ours would replace: name it in [keep] replaces"
        mine = {each.priority for each in intent.lossless}
        for queue, cos in _pauses(present, theirs):
            if queue not in mine or cos not in ("", str(queue)):
                yield (
                    f"{what}, and with it flow control of queue {queue} by CoS {cos or queue}, "
                    f"which would end: make that a lossless class, or leave this device out"
                )

    def fit(self, intent: Intent, device: Device, rendered: State, present: State) -> Fit:
        """As the base class. `on` with more words stays; `on` by switchcfg is removed when the
        intent no longer has it."""
        found = super().fit(intent, device, rendered, present)
        stays = {
            place: value
            for place, value in present.items()
            if place.kind == "interface pfc" and place in rendered and value.startswith("on ")
        }
        gone = frozenset(place for place in _switched_on(intent, present) if place not in rendered)
        return Fit({**found.state, **stays}, found.gives_way | gone, found.problems)

    def given_back(self, intent: Intent, device: Device, present: State) -> GivenBack:
        return GivenBack(dict.fromkeys(_switched_on(intent, present)), ())

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
        """Buffers for lossless classes are re-allocated on all ports."""
        kinds = {change.place.kind: change.place.name for change in reversed(changes)}
        found: list[str] = []
        if not kinds.keys().isdisjoint({"system network", "class pause"}):
            found.append("flow control of the whole switch changes: all ports may lose packets")
        if port := kinds.get("interface queue"):
            found.append(f"all ports of the type of {port} lose packets for a moment")
        return tuple(found)


def _pauses(present: State, active: str) -> Iterator[tuple[int, str]]:
    """(queue, CoS) of the lossless classes of a network-qos policy; CoS "": not configured."""
    for place, cos in present.items():
        policy, _, name = place.name.partition(SEPARATOR)
        if place.kind == "class pause" and policy == active:
            group = present.get(Place("class group", name, ""), "")
            yield number_of(group or (name if name[-1:].isdigit() else cos)), cos


def _switched_on(intent: Intent, present: State) -> Iterator[Place]:
    """Flow control of ports that switchcfg turned on: port and switch have its policies."""
    if is_ours(intent, present.get(_SYSTEM, "")):
        for place, value in present.items():
            bound = present.get(Place("interface queue", place.name, ""), "")
            if place.kind == "interface pfc" and value == "on" and is_ours(intent, bound):
                yield place


def _kept_ways(intent: Intent, policy: str, present: State) -> Iterator[str]:
    """Code points and CoS that a policy sends to kept or lossless queues, and switchcfg's would
    not."""
    homes = {dscp: each.priority for each in intent.lossless for dscp in each.dscp}
    homes |= intent.keep.dscp
    how = {each.priority: "lossless" for each in intent.lossless}
    how |= dict.fromkeys(intent.keep.queues, "kept")
    for place, group in present.items():
        name, *inside = place.name.split(SEPARATOR)
        if (place.kind, name) != ("mark group", policy) or number_of(group) not in how:
            continue
        for kind in ("class match", "all match", "cos match"):
            what = present.get(Place(kind, inside[0], ""), "")
            for each in what.split(",") if what else ():
                point = int(each) if kind != "cos match" and each.isdecimal() else -1
                if homes.get(point) != number_of(group):
                    unit = "CoS" if kind == "cos match" else "code point"
                    yield f"{unit} {each} in {how[number_of(group)]} queue {group}"


def _marking(intent: Intent, layout: Layout) -> Iterator[tuple[Place, str]]:
    """DSCP -> qos-group = queue. All other packets fall through to the system's last class."""
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
    turns = percents(layout, below(layout))
    for queue in layout.queues:
        yield from _queue(f"{name}{SEPARATOR}{_class(queue.index)}", queue, turns.get(queue.index))
    for each in layout.lossless:
        where = f"{name}{SEPARATOR}{_class(each.priority)}"
        yield Place("queue bandwidth", where, ""), str(turns[each.priority])
        yield from _marks(where, each.mark)
    for port in group.ports:
        yield Place("interface mark", port, ""), intent.prefix
        yield Place("interface queue", port, ""), name


def _class(index: int) -> str:
    """The system's name of a queue."""
    return f"c-out-8q-q{index}" if index else "c-out-8q-q-default"


def _queue(name: str, queue: Queue, percent: int | None) -> Iterator[tuple[Place, str]]:
    """Lines of one queue. `percent`: share of the rate that strict queues leave; None: strict."""
    if queue.index and percent is None:
        yield Place("queue priority", name, ""), str(QUEUES - queue.index)
    else:
        yield Place("queue bandwidth", name, ""), str(percent or 100)
    yield from _marks(name, queue.mark)
    bare = queue.bands[-1]
    if queue.mark and len(queue.bands) > 1 and (bare.begin, bare.certain) != queue.mark:
        yield Place("queue bare", name, ""), f"{bare.begin} {bare.certain} 100"
    yield Place("queue limit", name, ""), str(queue.limit)


def _marks(name: str, mark: tuple[int, int] | None) -> Iterator[tuple[Place, str]]:
    if mark:
        yield Place("queue detect", name, ""), f"{mark[0]} {mark[1]} 100 0 ecn"


def _network(intent: Intent, group: PortGroup, layout: Layout) -> Iterator[tuple[Place, str]]:
    """The network-qos policy of the whole switch, and flow control of the group's ports."""
    if not layout.lossless:
        return
    policy = f"{intent.prefix}-NETWORK"
    yield Place("class mtu", f"{policy}{SEPARATOR}c-8q-nq-default", ""), str(MTU)
    for each in layout.lossless:
        where = f"{policy}{SEPARATOR}c-8q-nq{each.priority}"
        yield Place("class mtu", where, ""), str(MTU)
        yield Place("class pause", where, ""), str(each.priority)
    yield _SYSTEM, policy
    for port in group.ports:
        yield Place("interface pfc", port, ""), "on"
