"""Cisco NX-OS on Nexus 9000: command lines as `show running-config` has them. Pure.

One curve per queue, shared by dropping and ECN; strict-priority queues must be the highest
and adjacent; queuing policies are disruptive. Source: Nexus 9000 QoS guides 10.x. That all
queues but the last may be strict at levels of their own depends on the queuing template.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from switchcfg.intent.intent import QUEUES, Intent, PortGroup
from switchcfg.plan.queues import Abilities, Layout, Queue
from switchcfg.plan.state import Change, Place
from switchcfg.platforms.commands import CommandPlatform
from switchcfg.platforms.grammar import SEPARATOR, Grammar, Rule
from switchcfg.platforms.platform import group_name

ABLE: Final = Abilities(curves=1, own_mark=False, spray=("hash",))  # it hashes layer 4 by itself

_CLASS: Final = "class-map type qos match-any {class}"
_MARK: Final = ("policy-map type qos {policy}", "class {class}")
_QUEUE: Final = ("policy-map type queuing {policy}", "class type queuing {class}")
_PORT: Final = "interface {port}"
_RANGE: Final = (
    "minimum-threshold <min> bytes maximum-threshold <max> bytes drop-probability <most>"
)
GRAMMAR: Final = Grammar(
    rules=(
        Rule("class match", (_CLASS, "match dscp <dscps>"), "no match dscp <dscps>", adds=True),
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
)


class Nxos(CommandPlatform):
    """NX-OS 10.2 and later."""

    name, able, grammar, mode = "nxos", ABLE, GRAMMAR, "configure"
    binds = ("interface mark", "interface queue")
    said = "show running-config"
    signs = (
        r"^(hostname|switchname|feature|version|interface|(class|policy)-map type) \S|^system qos"
    )
    strange = r"^(! (device|Command): |qos (map|profile) |vrf instance |transceiver |nv )"
    degraded = ("more than one strict level needs a queuing template that has them",)

    def group(self, intent: Intent, group: PortGroup, layout: Layout) -> Mapping[Place, str]:
        return dict([*_marking(intent, layout), *_queuing(intent, group, layout)])

    def disrupts(self, changes: Sequence[Change]) -> tuple[str, ...]:
        for change in changes:
            if change.place.kind == "interface queue":
                return (f"all ports of the type of {change.place.name} lose packets for a moment",)
        return ()


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
