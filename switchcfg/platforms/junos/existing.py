"""Adapts the wanted state to foreign configuration of a Junos device, such as RoCE. Pure.

A lossless queue is a forwarding class with `no-loss`, PFC is a congestion notification profile on
a port. A kept queue keeps its class: switchcfg's classifiers send its code points there, and its
scheduler maps use the scheduler that the port has today. The intent's lossless classes replace a
foreign PFC profile if they include all traffic that it pauses.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from switchcfg.intent.intent import Device, Intent, PortGroup
from switchcfg.plan.kept import kept, left_out, lossless
from switchcfg.plan.state import Change, Place, State
from switchcfg.platforms.junos.present import CLASSIFIERS, DIFFERS, Home, Present, covers
from switchcfg.platforms.junos.text import NOT_READ, OTHER
from switchcfg.platforms.platform import group_name, is_ours
from switchcfg.platforms.rule import SEPARATOR

BINDS: Final = ("interface map", *CLASSIFIERS.values())


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
    yield from _by_priority(intent, port, present)
    for where, line in _by_pattern(port, present):
        yield (
            f"kept: {port} has `{line}` by the pattern {where!r}, which lines for {port} itself "
            f"would override: write the line for {port} itself, or name the port in [keep] ports"
        )
        break  # one is enough


def _by_priority(intent: Intent, port: str, present: Present) -> Iterator[str]:
    """Kept queues that packets of VLANs reach by their priority, while the port has no classifier
    of code points."""
    for bits, name in sorted(present.by_priority(port).items()):
        queue = present.queue(name) if name else None
        if intent.keep.queues and (queue is None or queue in intent.keep.queues):
            where = (
                f"queue {queue}, which is kept"
                if queue is not None
                else ("a queue that the chip chooses, which may be kept")
            )
            yield (
                f"kept-pcp: {port}: VLAN priority {bits} goes to {where}, and the plan would "
                "classify by code points: bind a classifier of code points first, or name the "
                "port in [keep] ports"
            )
            return


def _undecided(
    intent: Intent, port: str, ways: Mapping[int, Home], present: Present
) -> Iterator[str]:
    """Code points whose class is built in, and on a queue that may be kept."""
    for name, queues in DIFFERS.items():
        points = [dscp for dscp, (to, _) in ways.items() if to == name]
        may = sorted(queues & {*intent.keep.queues})
        if points and may and present.queue(name) is None:
            yield (
                f"kept-dscp: {port}: {_code_points(points)} to the built-in class {name}, on queue "
                f"{may[0]} of some chips, which is kept: name its queue (`forwarding-classes class "
                f"{name} queue-num ...`), or the code points in the classifier"
            )


def _code_points(points: Sequence[int]) -> str:
    shown = ", ".join(map(str, sorted(points)))
    return f"code point {shown} goes" if len(points) == 1 else f"code points {shown} go"


def unread(present: Present, changes: Sequence[Change]) -> Iterator[str]:
    """Applied groups, and deactivations that affect changed ports; the rule's name first."""
    names = [each.place.name for each in changes if each.place.kind.startswith("interface")]
    ports = {name.split(SEPARATOR)[0] for name in names}
    for what in map(SEPARATOR.join, present.rows.get(NOT_READ, {})):
        if what.startswith("groups "):
            yield (
                f"groups: `set {what} ...` is applied, and switchcfg does not "
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
    yield from _headroom(intent, port, theirs, present)
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
            for name, bits, queue in present.rows.get("pfc output", {})
            if name == theirs and queues.get(bits) != queue
        ),
    ]
    for each in lost:
        yield (
            f"lossless: {port} has {theirs!r}, which pauses {each}, and the plan would end that: "
            "add a [[lossless]] class for it, or name the port in [keep] ports"
        )


def _headroom(intent: Intent, port: str, theirs: str, present: Present) -> Iterator[str]:
    """Settings of the headroom in a foreign PFC profile that its replacement would not have."""
    cable = max((each.cable for each in intent.lossless), default=0)
    length = present.bound("pfc cable", theirs)
    if length not in ("", str(cable)):
        yield (
            f"lossless: {port} has {theirs!r} with a cable length of {length} m, and the intent "
            f'says {cable or "none"}: write cable = "{length}m", or name the port in [keep] ports'
        )
    for kind in ("mru", "xon", "cable-length"):
        for (name, _, bits), value in present.rows.get(f"pfc {kind}", {}).items():
            if name == theirs:
                yield (
                    f"lossless: {port} has {theirs!r} with {kind} {value} for code point {bits}, "
                    "which switchcfg does not set: name the port in [keep] ports"
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
            if covers(where, port):
                yield where, f"{words} {name}"
    for where, line in present.rows.get(OTHER, {}):
        if covers(where, port):
            yield where, line


def with_kept_classes(
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
            found += _undecided(intent, port, ways, present)
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
