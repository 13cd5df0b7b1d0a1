"""Cisco NX-OS on Nexus 9000: command lines as `show running-config` has them. Pure.

One curve per queue, shared by dropping and ECN; strict-priority queues must be the highest
and adjacent; queuing policies are disruptive. Source: Nexus 9000 QoS guides 10.x. That all
queues but the last may be strict at levels of their own depends on the queuing template.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from switchcfg.intent import QUEUES, Device, Intent, PortGroup
from switchcfg.platforms.grammar import SEPARATOR, Grammar, Rule
from switchcfg.platforms.platform import Rendered, Step
from switchcfg.queues import Abilities, Layout, Queue, lay_out
from switchcfg.state import Change, Owns, Place, State, after

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
        Rule("queue limit", (*_QUEUE, "queue-limit bytes <limit>"), "no queue-limit"),
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


class Nxos:
    """NX-OS 10.2 and later."""

    name: Final = "nxos"

    def render(self, intent: Intent, device: Device) -> Rendered:
        state: dict[Place, str] = {}
        degraded: dict[str, None] = {}
        for group in device.groups:
            layout = lay_out(intent, group, ABLE)
            degraded |= dict.fromkeys(layout.degraded)
            state |= _marking(intent, layout)
            state |= _queuing(intent, group, layout)
        degraded["more than one strict level needs a queuing template that has them"] = None
        return Rendered(state, tuple(degraded))

    def owns(self, intent: Intent) -> Owns:
        def ours(name: str) -> bool:
            return name == intent.prefix or name.startswith(f"{intent.prefix}-")

        def owns(place: Place, value: str) -> bool:
            if place.kind.startswith("interface"):
                return ours(value)
            return ours(place.name.split(SEPARATOR)[0])

        return owns

    def write(self, state: State) -> str:
        return GRAMMAR.write(state)

    def read(self, text: str) -> State:
        return GRAMMAR.read(text)

    def check(self, state: State, device: Device) -> Sequence[str]:
        return ()

    def steps(self, present: State, changes: Sequence[Change]) -> Sequence[Step]:
        lines = GRAMMAR.commands(changes, after(present, changes))
        disrupts = tuple(
            f"all ports of the type of {change.place.name} lose packets for a moment"
            for change in changes
            if change.place.kind == "interface queue"
        )[:1]
        return (Step("configure", "".join(f"{line}\n" for line in lines), disrupts),)


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
    name = "-".join(filter(None, (intent.prefix, group.name, "OUT")))
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
