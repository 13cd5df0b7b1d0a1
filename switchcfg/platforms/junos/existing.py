"""Adapts the wanted state to foreign configuration of a Junos device, such as RoCE. Pure.

A lossless queue is a forwarding class with `no-loss`, PFC is a congestion notification profile on
a port. A kept queue keeps its class: switchcfg's classifiers send its code points there, and its
scheduler maps use the scheduler that the port has today. The intent's lossless classes replace a
foreign PFC profile if they include all traffic that it pauses.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from switchcfg.intent.intent import Device, Intent, PortGroup
from switchcfg.plan.kept import kept, left_out, lossless
from switchcfg.plan.state import Change, Place, State
from switchcfg.platforms.grammar import SEPARATOR
from switchcfg.platforms.junos.text import OTHER, UNREAD
from switchcfg.platforms.platform import group_name, is_ours

# Kinds of lines: of a classifier -> of its binding to a port.
CLASSIFIERS: Final = {
    "classifier": "interface classifier",
    "classifier ipv6": "interface classifier ipv6",
}
BINDS: Final = ("interface map", *CLASSIFIERS.values())
# Built-in classes and their queues; the queues of other built-in classes differ by chip.
DEFAULTS: Final = {"best-effort": 0, "fcoe": 3, "no-loss": 4}
# Lines of a port that conflict with switchcfg's and that no line of switchcfg replaces.
_IN_THE_WAY: Final = re.compile(
    r"((unit (0|\*) )?(classifiers (dscp|dscp-ipv6|inet-precedence)|forwarding-class|"
    r"output-traffic-control-profile|scheduler-map)|forwarding-class-set|"
    r"input-(scheduler-map|traffic-control-profile)) .*"
)
Home = tuple[str, str]  # forwarding class, loss priority


@dataclass(frozen=True, slots=True)
class Present:
    """A device's state, indexed for queries."""

    state: State
    rows: Mapping[str, Mapping[tuple[str, ...], str]] = field(default_factory=dict)

    @classmethod
    def of(cls, state: State) -> "Present":
        """Index a state: `rows` is kind -> parts of the name -> value."""
        rows: dict[str, dict[tuple[str, ...], str]] = {}
        for place, value in state.items():
            rows.setdefault(place.kind, {})[tuple(place.name.split(SEPARATOR))] = value
        return cls(state, rows)

    def bound(self, kind: str, port: str) -> str:
        """The value that is bound to a port, by kind of line; "": none."""
        return self.state.get(Place(kind, port, ""), "")

    def queue(self, name: str) -> int | None:
        """The queue of a forwarding class; None: unknown."""
        found = self.state.get(Place("class queue", name, ""), "")
        return int(found) if found.isdecimal() else DEFAULTS.get(name)

    def controlled(self, port: str, ours: Callable[[str], bool] = lambda _: False) -> set[int]:
        """Queues with flow control: of the switch's lossless classes, and by the port's profile.
        Classes and profiles whose name satisfies `ours` are left out."""
        classes = [name for (name,) in self.rows.get("class no-loss", {})]
        found = {self.queue(name) for name in classes if not ours(name)}
        profile = self.bound("interface pfc", port)
        if ours(profile):
            profile = ""
        for (name, _), queue in self.rows.get("pfc output", {}).items():
            if name == profile and queue.isdecimal():
                found.add(int(queue))
        if not classes:  # the default classes: a queue has its priority's number
            for name, bits in self.rows.get("pfc tagged", {}):
                if name == profile and re.fullmatch("[01]{3}", bits):
                    found.add(int(bits, 2))
        return {each for each in found if each is not None}

    def protected(self, intent: Intent, port: str) -> set[int]:
        """Queues with foreign flow control."""
        return self.controlled(port, lambda name: is_ours(intent, name))

    def ways(self, port: str) -> dict[str, dict[int, Home]]:
        """Kind of classifier -> code point -> its class and loss priority on a port."""
        found: dict[str, dict[int, Home]] = {}
        for kind, binds in CLASSIFIERS.items():
            if name := self.bound(binds, port):
                found[kind] = {
                    int(bits, 2): (to, loss)
                    for each, to, loss, bits in self.rows.get(kind, {})
                    if each == name and re.fullmatch("[01]{6}", bits)
                }
        return found

    def schedulers(self, port: str) -> dict[str, str]:
        """Forwarding class -> its scheduler on a port."""
        map_ = self.bound("interface map", port)
        rows = self.rows.get("scheduler map", {})
        return {to: scheduler for (name, to), scheduler in rows.items() if name == map_}


def problems(intent: Intent, port: str, present: Present) -> Iterator[str]:
    """Conflicts of a port's foreign configuration; each begins with the rule's name."""
    for queue in sorted(present.protected(intent, port)):
        yield from lossless(intent, port, queue)
    yield from _pauses(intent, port, present)
    for kind in (*BINDS, *(("interface pfc",) if intent.lossless else ())):
        theirs = present.bound(kind, port)
        if theirs and not is_ours(intent, theirs) and theirs not in intent.keep.replaces:
            yield (
                f"kept: {port} has {theirs!r}, and the plan would replace it and end its "
                "functions (PFC, ECN): name it in [keep] replaces, or the port in [keep] ports"
            )
    for where, line in present.rows.get(OTHER, {}):
        if where == port and _IN_THE_WAY.fullmatch(line):
            yield (
                f"kept: {port} has `{line}`, which conflicts with the plan: delete it, or name "
                "the port in [keep] ports"
            )
    for where, line in _by_pattern(port, present):
        yield (
            f"kept: {port} has `{line}` by the pattern {where!r}, which lines for {port} itself "
            f"would override: write the line for {port} itself, or name the port in [keep] ports"
        )
        break  # one is enough


def unread(present: Present, changes: Sequence[Change]) -> Iterator[str]:
    """Applied groups, and deactivations that affect changed ports; the rule's name first."""
    names = [each.place.name for each in changes if each.place.kind.startswith("interface")]
    ports = {name.split(SEPARATOR)[0] for name in names}
    for what in map(SEPARATOR.join, present.rows.get(UNREAD, {})):
        if what.startswith("groups "):
            yield (
                f"groups: `set {what} class-of-service ...` is applied, and switchcfg does not "
                "read groups: write its lines where they are applied"
            )
            continue
        where = re.match(r"deactivate class-of-service interfaces (\S+)", what)
        if where is None or any(fnmatchcase(port, where[1]) for port in ports):
            yield (
                f"deactivated: `{what}`: lines of the plan there would have no effect: activate "
                "it, or delete it"
            )


def mixed(intent: Intent, device: Device, present: Present) -> Iterator[str]:
    """Conflicts of foreign classes on queues of lossless classes: the classes of a queue must be
    all lossless or all lossy, with the same PFC priority."""
    has = {str(each.priority) for each in intent.lossless}
    for (name,), queue in present.rows.get("class queue", {}).items():
        if queue not in has or is_ours(intent, name):
            continue
        where = f"lossless: {device.name} has class {name!r} on queue {queue}"
        priority = present.state.get(Place("class priority", name, ""), queue)
        if (name,) not in present.rows.get("class no-loss", {}):
            yield (
                f"{where}, which is lossy: the classes of a queue must be all lossy or all "
                "lossless: give that class another queue"
            )
        elif priority != queue:
            yield (
                f"{where} with PFC priority {priority}: a [[lossless]] class has the same number "
                "for both"
            )


def _pauses(intent: Intent, port: str, present: Present) -> Iterator[str]:
    """Traffic that a port's foreign PFC profile pauses, and its replacement would not."""
    theirs = present.bound("interface pfc", port)
    if not intent.lossless or is_ours(intent, theirs):
        return
    points = {f"{dscp:06b}" for each in intent.lossless for dscp in each.dscp}
    queues = {f"{each.priority:03b}": str(each.priority) for each in intent.lossless}
    lost = [
        *(
            f"code point {bits}"
            for name, bits in present.rows.get("pfc input", {})
            if name == theirs and bits not in points
        ),
        *(
            f"frames of VLANs with priority {bits}"
            for name, bits in present.rows.get("pfc tagged", {})
            if name == theirs
        ),
        *(
            f"queue {queue} by priority {bits}"
            for (name, bits), queue in present.rows.get("pfc output", {}).items()
            if name == theirs and queues.get(bits) != queue
        ),
    ]
    for each in lost:
        yield (
            f"lossless: {port} has {theirs!r}, which pauses {each}, and the plan would end that: "
            "add a [[lossless]] class for it, or name the port in [keep] ports"
        )


def left_without(present: Present, changes: Sequence[Change]) -> Iterator[str]:
    """Ports that would keep PFC, while changes remove the scheduler map or the classifier of their
    lossless queues."""
    without = {c.place.name for c in changes if c.place.kind == "interface pfc" and c.after is None}
    for change in changes:
        kind, port, _ = change.place
        pauses = present.bound("interface pfc", port) and port not in without
        if change.after is not None or not pauses:
            continue
        classes = {
            "interface map": set(present.schedulers(port)),
            "interface classifier": {
                to for to, _ in present.ways(port).get("classifier", {}).values()
            },
        }.get(kind, set())
        if {present.queue(each) for each in classes} & present.controlled(port):
            yield (
                f"lossless: {port} has PFC, and the plan would remove {change.before!r}, which "
                "serves its lossless queues"
            )


def _by_pattern(port: str, present: Present) -> Iterator[tuple[str, str]]:
    """(pattern, line) of lines for name patterns that match the port."""
    said = {
        "interface map": "scheduler-map",
        "interface pfc": "congestion-notification-profile",
        "interface classifier": "unit 0 classifiers dscp",
        "interface classifier ipv6": "unit 0 classifiers dscp-ipv6",
    }
    for kind, words in said.items():
        for (where,), name in present.rows.get(kind, {}).items():
            if "*" in where and fnmatchcase(port, where.strip("<>")):
                yield where, f"{words} {name}"
    for where, line in present.rows.get(OTHER, {}):
        if "*" in where and fnmatchcase(port, where.strip("<>")):
            yield where, line


def beside(
    intent: Intent, device: Device, rendered: State, present: Present
) -> tuple[dict[Place, str], list[str]]:
    """(the rendered state, with kept queues left to their foreign classes; problems)."""
    homes, found = _homes(intent, device, present)
    state: dict[Place, str] = {}
    for place, value in rendered.items():
        if place.kind in CLASSIFIERS:
            name, _, _, bits = place.name.split(SEPARATOR)
            if home := homes[place.kind].get(int(bits, 2)):
                state[Place(place.kind, SEPARATOR.join((name, *home, bits)), "")] = value
                continue
        state[place] = value
    for group in device.groups:
        maps, wrong = _schedulers(intent, group, present)
        state |= maps
        found += wrong
    parts = [(place.kind, place.name.split(SEPARATOR)) for place in state]
    used = {each[1] for kind, each in parts if kind in (*CLASSIFIERS, "scheduler map")}
    return {
        place: state[place] for place in state if place.kind != "class queue" or place.name in used
    }, found


def _homes(
    intent: Intent, device: Device, present: Present
) -> tuple[dict[str, dict[int, Home]], list[str]]:
    """(kind of classifier -> code point of a kept queue -> class and loss priority; problems)."""
    homes: dict[str, dict[int, Home]] = {kind: {} for kind in CLASSIFIERS}
    found: list[str] = []
    for port in device.ports:
        for kind, ways in present.ways(port).items():
            today = {
                dscp: (q, q)
                for dscp, (to, _) in ways.items()
                if (q := present.queue(to)) is not None
            }
            keeps, wrong = kept(intent, port, today)
            theirs = present.protected(intent, port)
            paused = {dscp: queue for dscp, (_, queue) in today.items() if queue in theirs}
            found += [*wrong, *left_out(intent, port, paused)]
            for dscp in keeps:
                if homes[kind].setdefault(dscp, ways[dscp]) != ways[dscp]:
                    found.append(
                        f"kept-dscp: code point {dscp} goes to {ways[dscp][0]!r} on {port} and "
                        f"to {homes[kind][dscp][0]!r} on another port: one classifier cannot do "
                        "both"
                    )
    named = [name for (name,) in present.rows.get("class queue", {}) if not is_ours(intent, name)]
    classes = {present.queue(name): name for name in sorted(named, reverse=True)}
    for kind in CLASSIFIERS:
        for dscp, queue in intent.keep.dscp.items():
            if queue in classes:
                homes[kind].setdefault(dscp, (classes[queue], "low"))
    # Without its own classifier, IPv6 is classified as IPv4, or not at all.
    homes["classifier ipv6"] = homes["classifier"] | homes["classifier ipv6"]
    return homes, found


def _schedulers(
    intent: Intent, group: PortGroup, present: Present
) -> tuple[dict[Place, str], list[str]]:
    """(lines of a group's scheduler map for the classes of kept queues; problems)."""
    map_ = group_name(intent, group)
    state: dict[Place, str] = {}
    found: list[str] = []
    for port in group.ports:
        today = present.schedulers(port)
        for name, scheduler in today.items():
            if is_ours(intent, name) or present.queue(name) not in intent.keep.queues:
                continue
            place = Place("scheduler map", f"{map_}{SEPARATOR}{name}", "")
            if state.setdefault(place, scheduler) != scheduler:
                found.append(
                    f"kept: class {name!r} has scheduler {scheduler!r} on {port} and "
                    f"{state[place]!r} on other ports of its group: give the port its own `group`"
                )
        if not present.bound("interface pfc", port):
            continue
        for (name,) in present.rows.get("class no-loss", {}):
            if present.queue(name) in intent.keep.queues and name not in today:
                found.append(
                    f"kept: {port} has no scheduler for class {name!r}, which is lossless: add "
                    "the class to the port's scheduler map first"
                )
    return state, found
