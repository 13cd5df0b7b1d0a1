"""Platform Junos and Junos EVO: `set` lines of `show configuration | display set`. Pure.

Junos sets the drop precedence (loss priority) by DSCP; its thresholds are fill levels in percent of
a queue's buffer. Only strict-high is certain to be served before the levels below it, and it has no
ECN; plans list both as degraded.

A lossless class is a forwarding class with `no-loss`. A congestion notification profile turns on
PFC for its code points on a port, and holds the cable length.

Sources of the limits in docs/switches-platforms.md are Juniper's pages:

    strict-high    "Example: Configuring ECN", "Understanding CoS Explicit Congestion Notification"
    drop profiles  "Example: Configuring ECN", "Configuring CoS WRED Drop Profiles"
    levels         "priority (Schedulers)"
    dscp-ipv6      "Defining CoS BA Classifiers", "Applying DSCP and DSCP IPv6 Classifiers on ACX
                   Series Routers"
    PFC            "Configuring DSCP-based PFC for Layer 3 Untagged Traffic",
                   "congestion-notification-profile", "cable-length", "class (Forwarding Classes)",
                   "Defining CoS Forwarding Classes", "Configure CoS PFC with Congestion
                   Notification Profiles"
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from switchcfg.errors import CannotExpress
from switchcfg.intent.intent import Device, Intent, PortGroup
from switchcfg.plan.account import UNREAD, Reading
from switchcfg.plan.queues import Abilities, Layout, lay_out
from switchcfg.plan.state import Change, Owns, Place, State, after
from switchcfg.platforms.commands import CommandPlatform, member
from switchcfg.platforms.junos import text as junos_text
from switchcfg.platforms.junos.existing import (
    BINDS,
    left_without,
    mixed,
    problems,
    unread,
    with_kept_classes,
)
from switchcfg.platforms.junos.grammar import GRAMMAR
from switchcfg.platforms.junos.known import COS, ENTRY
from switchcfg.platforms.junos.netconf import NETCONF
from switchcfg.platforms.junos.present import CLASSIFIERS, Present, covers
from switchcfg.platforms.junos.wanted import (
    PER_PACKET,
    STRICT,
    balance,
    classes,
    fill_levels,
    ports,
)
from switchcfg.platforms.platform import Fit, Netconf, Rendered, Step, Taken
from switchcfg.platforms.rule import SEPARATOR
from switchcfg.platforms.weighted import in_words

ABLE: Final = Abilities(curves=3, own_mark=False, spray=("hash", "packet"), lossless=6)
# Queues of Junos' own lossy classes: the classes of a queue must be all lossy or all lossless.
DROPPING: Final = {0: "best-effort", 7: "network-control"}


class Junos(CommandPlatform):
    """Junos 22 and later on QFX, Junos EVO on PTX and QFX. A candidate is committed as a whole."""

    name, able, grammar, mode = "junos", ABLE, GRAMMAR, "configure private"
    binds, names_ports = BINDS, r"^set interfaces (\S+) "
    degraded = (
        "strict order: only the first queue is strict-high, and some routers serve it together "
        "with high; a chip without the lower levels divides the remaining rate by buffer size",
        "thresholds become percentages of each queue's buffer",
    )

    def render(self, intent: Intent, device: Device) -> Rendered:
        for each in intent.lossless:
            if own := DROPPING.get(each.priority):
                raise CannotExpress(
                    f"{device.name}: lossless: {each.name}: junos: queue {each.priority} has the "
                    f"built-in class {own}, which is lossy: give this device an intent without "
                    "the lossless class"
                )
        found = super().render(intent, device)
        said = list(found.degraded)
        for group in device.groups:
            first, *others = lay_out(intent, group, self.able).queues
            if first.mark:
                said.append(f"{first.name}: no ECN: Junos has none on strict-high queues")
            if any(queue.mark and len(queue.bands) > 1 for queue in others):
                said.append(
                    "drop precedences of queues with ECN: some chips drop Not-ECT packets only "
                    "when the queue is full"
                )
        state = found.state
        if device.dscp_ipv6:
            said.append(
                "IPv6: has its own classifier; write dscp_ipv6 = false for chips that have none"
            )
        else:
            only = "classifier ipv6"
            state = {p: state[p] for p in state if p.kind not in (only, CLASSIFIERS[only])}
            said.append(
                "IPv6: has no classifier of its own; the chip decides how the IPv4 classifier "
                "applies"
            )
        return Rendered(state, tuple(dict.fromkeys(said)))

    def lacking(self, intent: Intent, device: Device) -> Iterator[str]:
        cables = {each.cable for each in intent.lossless}
        for group in device.groups:
            layout = lay_out(intent, group, self.able)
            yield from in_words(layout, layout.queues[STRICT:], "Junos has five levels")
            for each in layout.lossless:
                yield f"{each.name}: PFC by code point works for traffic without VLAN tags only"
                if each.mark:
                    low, high = fill_levels(*each.mark, group.buffer)
                    yield (
                        f"{each.name}: ECN from {low}% to {high}% of its queue: Junos has no "
                        f"thresholds in bytes, so {group.buffer} bytes are assumed as the size "
                        "of the queue"
                    )
        if len(cables) > 1:
            yield f"cable: a port has one length, {max(cables)}m, for all its lossless classes"

    def disrupts(self, changes: Sequence[Change]) -> tuple[str, ...]:
        if any(each.place.kind.startswith(("pfc ", "interface pfc")) for each in changes):
            return ("ports with PFC forward nothing while their PFC changes",)
        return ()

    def owns(self, intent: Intent) -> Owns:
        named = super().owns(intent)

        def owns(place: Place, value: str) -> bool:
            if place.kind == "balance mode":  # has no name: the value identifies it
                return value == PER_PACKET and intent.spray != "keep"
            return named(place, value)

        return owns

    def read(self, text: str) -> State:
        return Reading.from_text(junos_text.read(text, self.grammar), text)

    def near(self, device: Device, present: State) -> Collection[str]:
        """Also patterns that stand for a port, and interface ranges, which may have one."""
        owners = {place.name for place in present if place.kind == UNREAD}
        around = [
            owner
            for owner in owners
            if owner.startswith("interface-range ")
            or any(covers(owner, port) for port in device.ports)
        ]
        about = (junos_text.NOT_READ, junos_text.OTHER)
        values = {place: value for place, value in present.items() if place.kind not in about}
        return self.grammar.near([*device.ports, *around], values)

    def fit(self, intent: Intent, device: Device, rendered: State, present: State) -> Fit:
        there = Present.of(present)
        found = [each for port in device.ports for each in member(port, self.name, present)]
        found += mixed(intent, device, there)
        found += [each for port in device.ports for each in problems(intent, port, there)]
        state, wrong = with_kept_classes(intent, device, rendered, there)
        return Fit(state, frozenset(), tuple(dict.fromkeys([*found, *wrong])))

    def takes(self, present: State, changes: Sequence[Change]) -> Taken:
        there = Present.of(present)
        return Taken((*left_without(there, changes), *unread(there, changes)), ())

    def steps(self, present: State, changes: Sequence[Change]) -> Sequence[Step]:
        """One step: the candidate."""
        then = after(present, changes)
        # A port has one PFC profile, named in the line's path: a new line does not replace it.
        named = {change.place for change in changes if change.place.kind == "interface pfc"}
        gone = [
            change
            for change in changes
            if change.after is None or (change.place in named and change.before is not None)
        ]
        lines = [*self._deletes(gone, then)]
        lines += self.grammar.commands([each for each in changes if each.after is not None], {})
        payload = "".join(f"{line}\n" for line in lines)
        return (Step(self.mode, payload, self.disrupts(changes)),)

    def _deletes(self, gone: Sequence[Change], then: State) -> Iterator[str]:
        """Commands that delete each line, or the outermost entry that becomes empty."""
        left: set[str] = set()
        for place, value in then.items():
            if place.kind == junos_text.NOT_READ:
                continue
            if place.kind == UNREAD:
                line = place.field.removeprefix("set ")
            elif place.kind == junos_text.OTHER:
                line = f"{COS} interfaces {place.name.replace(SEPARATOR, ' ', 1)}"
            else:
                line = self.grammar.write({place: value}).strip().removeprefix("set ")
            words = line.split(" ")
            left |= {" ".join(words[:end]) for end in range(1, len(words))}
        lines = self.grammar.undone([(each.place, each.before or "") for each in gone])
        told: dict[str, None] = {}
        for line in lines:
            words = line.removeprefix("delete ").split(" ")
            heads = (" ".join(words[:end]) for end in range(1, len(words) + 1))
            entries = (each for each in heads if ENTRY.fullmatch(each) and each not in left)
            told[f"delete {next(entries, ' '.join(words))}"] = None
        yield from told

    def netconf(self) -> Netconf:
        return NETCONF

    def group(self, intent: Intent, group: PortGroup, layout: Layout) -> Mapping[Place, str]:
        lines = (classes(intent, layout), ports(intent, group, layout), balance(intent))
        return dict(chain.from_iterable(lines))
