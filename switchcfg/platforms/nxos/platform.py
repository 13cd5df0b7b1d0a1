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
from itertools import chain
from typing import Final

from switchcfg.errors import CannotExpress
from switchcfg.intent.intent import Device, Intent, PortGroup
from switchcfg.plan.account import Reading
from switchcfg.plan.queues import Abilities, Layout, lay_out
from switchcfg.plan.state import Change, Place, State, after
from switchcfg.platforms.commands import CommandPlatform, number_of
from switchcfg.platforms.nxos.existing import carried, left_without, lost
from switchcfg.platforms.nxos.grammar import GRAMMAR
from switchcfg.platforms.nxos.wanted import SYSTEM, marking, network, queuing
from switchcfg.platforms.platform import Fit, GivenBack, Rendered, Taken, is_ours
from switchcfg.platforms.rule import SEPARATOR
from switchcfg.platforms.weighted import below, in_words

# NX-OS hashes layer 4 by default. Chips have headroom for two lossless classes.
ABLE: Final = Abilities(curves=1, own_mark=False, spray=("hash",), bare_curve=True, lossless=2)
FAR: Final = 100  # metres of cable beyond which headroom must be configured

_ETHERNET: Final = re.compile(r"(Ethernet|port-channel)[\d/]+")


class Nxos(CommandPlatform):
    """NX-OS 10.2 and later."""

    name, able, grammar, mode = "nxos", ABLE, GRAMMAR, "configure"
    binds = ("interface mark", "interface queue")
    marks, lists_ports = "queue detect", True
    said = "show running-config"
    signs = (
        r"^(hostname|switchname|feature|version|interface|(class|policy)-map type) \S|^system qos"
    )
    strange = (
        r"^(! (device|Command): |qos (map|profile) |vrf instance |transceiver |nv |"
        r"set (system|interfaces|class-of-service) )"
    )
    message = r"^banner \w+ (\S)(?:.*\n(?!banner ))*?.*?\1"
    degraded = ("more than one strict level needs a queuing template with several levels",)

    def render(self, intent: Intent, device: Device) -> Rendered:
        for each in intent.lossless:
            if each.priority == 0:
                why = "priority 0 belongs to the default class, which is lossy"
            elif each.cable > FAR:
                why = (
                    f"a cable of {each.cable}m needs a configured pause buffer; switchcfg "
                    f"supports at most {FAR}m"
                )
            else:
                continue
            raise CannotExpress(
                f"{device.name}: lossless: {each.name}: nxos: {why}: give this device an intent "
                "without the lossless class"
            )
        return super().render(intent, device)

    def group(self, intent: Intent, group: PortGroup, layout: Layout) -> Mapping[Place, str]:
        lines = (
            marking(intent, layout),
            queuing(intent, group, layout),
            network(intent, group, layout),
        )
        return dict(chain.from_iterable(lines))

    def lacking(self, intent: Intent, device: Device) -> Iterator[str]:
        if not device.groups:
            return
        layout = lay_out(intent, device.groups[0], self.able)
        yield from in_words(
            layout, below(layout), "NX-OS has no strict queue below a weighted queue"
        )
        for each in layout.lossless:
            yield f"{each.name}: queue {each.priority} is lossless on all ports with flow control"

    def read(self, text: str) -> State:
        found = super().read(text)
        state = {
            place: value
            for place, value in found.items()
            if place.kind != "port" or _ETHERNET.fullmatch(place.name)
        }
        return Reading.of(found, state)

    def flow_controlled(self, present: State, port: str = "") -> Iterator[int]:
        """As the base class. Unless a port's mode is `off`, its neighbour may turn it on (DCBX)."""
        if present.get(Place("interface pfc", port, "")) == "off":
            return
        for queue, _ in _pauses(present, present.get(SYSTEM, "")):
            yield queue

    def protected(self, intent: Intent, present: State, port: str) -> Iterator[int]:
        if not is_ours(intent, present.get(SYSTEM, "")):
            yield from self.flow_controlled(present, port)

    def conflicts(self, intent: Intent, device: Device, present: State) -> Iterator[str]:
        """As the base class: ports with mode `off`, and the switch's one network-qos policy, which
        switchcfg's would replace."""
        theirs = present.get(SYSTEM, "")
        if not intent.lossless:
            return
        for port in device.ports:
            if present.get(Place("interface pfc", port, ""), "") == "off":
                yield (
                    f"lossless: {port} has `priority-flow-control mode off`: remove that line first"
                )
        if not theirs or theirs.startswith("default-") or is_ours(intent, theirs):
            return
        what = f"kept: {device.name} has the network-qos policy {theirs!r}"
        if theirs not in intent.keep.replaces:
            yield f"{what}, and the plan would replace it: name it in [keep] replaces"
        mine = {each.priority for each in intent.lossless}
        for queue, cos in _pauses(present, theirs):
            if queue not in mine or cos not in ("", str(queue)):
                yield (
                    f"{what}, with flow control of queue {queue} by CoS {cos or queue}, and the "
                    "plan would end that: make it a lossless class, or remove this device from "
                    "the intent"
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
        system = self.inherited(present, "interface queue")
        state, wrong = carried(intent, device, {**found.state, **stays}, present, system)
        return Fit(state, found.gives_way | gone, (*found.problems, *wrong))

    def given_back(self, intent: Intent, device: Device, present: State) -> GivenBack:
        return GivenBack(dict.fromkeys(_switched_on(intent, present)), {})

    def marked(self, present: State, profile: str) -> Iterator[int]:
        for place, value in present.items():
            name, *queue = place.name.split(SEPARATOR)
            other = place.kind == "queue other random-detect" and value.endswith("ecn")
            if name == profile and (other or place.kind in {"queue marks", "queue detect"}):
                yield number_of(queue[0])

    def inherited(self, present: State, kind: str) -> str:
        policy = present.get(Place(kind.replace("interface", "system"), "", ""), "")
        return "" if policy.startswith("default-") else policy

    def lost(self, intent: Intent, theirs: str, present: State) -> str:
        """As the base class; then all else that kept and lossless queues have by a policy."""
        ecn = super().lost(intent, theirs, present)
        return ecn or next(lost(intent, theirs, present), "")

    def takes(self, present: State, changes: Sequence[Change]) -> Taken:
        then = after(present, changes)
        ports = {change.place.name for change in changes if change.place.kind == "interface mark"}
        paused = {port: set(self.flow_controlled(then, port)) for port in ports}
        return Taken(tuple(left_without(present, then, changes, paused)), ())

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
    if is_ours(intent, present.get(SYSTEM, "")):
        for place, value in present.items():
            bound = present.get(Place("interface queue", place.name, ""), "")
            if place.kind == "interface pfc" and value == "on" and is_ours(intent, bound):
                yield place
