"""Adapts the wanted state to foreign configuration of an OpenConfig device. Pure.

The model has no flow control: only `[keep]` of the intent marks a lossless queue.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from switchcfg.intent.intent import Intent
from switchcfg.plan.state import Change, Place, State
from switchcfg.platforms.openconfig.tree import FAMILIES, SEPARATOR
from switchcfg.platforms.platform import is_ours

KEPT = "-KEEP-"  # in the name of a term with a foreign forwarding group
_NO_NUMBER: Final = (
    "which has no queue-id: whether a queue of the plan is the same is unknown: give it one, or "
    "name the port in [keep] ports"
)
Tables = Mapping[str, Mapping[str, Mapping[str, str]]]


def others(intent: Intent, port: str, there: Tables) -> Iterator[str]:
    """Problems of foreign configuration of a port that would be replaced, or that conflicts."""
    for name, fields in there.get("interface-ref", {}).items():
        means = f"{fields.get('interface', name)}.{fields.get('subinterface', '0')}"
        if name == port or means == f"{port}.0":
            yield (
                f"kept: interface-id {name!r} stands for {means} and not for the port of that "
                f"name, so switchcfg does not replace its profiles: name {port} in [keep] ports"
            )
    for kind, _, theirs in _bound(port, there):
        if is_ours(intent, theirs):
            continue
        if theirs not in intent.keep.replaces:
            yield (
                f"kept: {port} has {theirs!r}, and the plan would replace it and end its "
                "functions: name it in [keep] replaces, or the port in [keep] ports"
            )
        elif kind == "interface-scheduler":
            yield from _served(intent, port, theirs, there)
        else:
            yield from _sent(intent, port, theirs, there)
    yield from _queues(intent, port, there)


def _queues(intent: Intent, port: str, there: Tables) -> Iterator[str]:
    """Problems of a port's foreign queues with numbers that traffic classes would use."""
    for name in there.get("interface-queue", {}):
        where, _, queue = name.partition(SEPARATOR)
        number = _number(queue, there)
        if where != port or is_ours(intent, queue):
            continue
        if number is None:
            yield f"kept: {port} has queue {queue!r}, {_NO_NUMBER}"
        elif number not in intent.keep.queues:
            yield (
                f"kept: {port} has queue {queue!r}, and a queue of the plan has its number, "
                f"{number}: name {number} in [keep] queues"
            )


def _bound(port: str, there: Tables) -> Iterator[tuple[str, str, str]]:
    """(kind, name, bound object) of a port's classifiers and scheduler policy."""
    names = (("interface-classifier", f"{port}{SEPARATOR}{each}") for each in FAMILIES)
    for kind, name in (*names, ("interface-scheduler", port)):
        theirs = there.get(kind, {}).get(name, {}).get("name")
        if theirs:
            yield kind, name, theirs


def _served(intent: Intent, port: str, policy: str, there: Tables) -> Iterator[str]:
    """Problems of kept queues that a foreign scheduler policy serves."""
    for name, fields in there.get("scheduler-input", {}).items():
        queue = fields.get("queue", "")
        number = _number(queue, there)
        if name.split(SEPARATOR)[0] != policy or is_ours(intent, queue):
            continue
        if queue and number is None:
            yield f"kept: {port}: {policy!r} serves queue {queue!r}, {_NO_NUMBER}"
        elif number in intent.keep.queues:
            yield (
                f"kept: {port}: {policy!r} serves queue {queue!r} ({number}), which is kept, and "
                "the plan would replace it: name the port in [keep] ports"
            )


def _sent(intent: Intent, port: str, classifier: str, there: Tables) -> Iterator[str]:
    """Problems of queues without a number to which a foreign classifier sends code points."""
    for term, fields in there.get("term-action", {}).items():
        group = there.get("forwarding-group", {}).get(fields.get("target-group", ""), {})
        queue = group.get("output-queue", group.get("unicast-output-queue", ""))
        mine = term.split(SEPARATOR)[0] == classifier and not is_ours(intent, queue)
        number = _number(queue, there)
        if mine and queue and number is None:
            yield f"kept: {port}: {classifier!r} sends packets to queue {queue!r}, {_NO_NUMBER}"
        points = [there.get(kind, {}).get(term) for kind in ("term-ipv4", "term-ipv6")]
        if mine and number in intent.keep.queues and not any(points):
            yield (
                f"kept: {port}: {classifier!r} sends all packets of {term!r} to queue {queue!r}, "
                "which is kept: write its code points, or name the port in [keep] ports"
            )


def _number(queue: str, there: Tables) -> int | None:
    found = there.get("queue", {}).get(queue, {}).get("queue-id", "")
    return int(found) if found.isdecimal() else None


def ways(port: str, there: Tables) -> dict[int, tuple[int, str]]:
    """Code point -> (number of its queue, forwarding group), by a port's classifiers."""
    found: dict[int, tuple[int, str]] = {}
    for kind, name, classifier in _bound(port, there):
        if kind != "interface-classifier":
            continue
        match = f"term-{name.rpartition(SEPARATOR)[2].lower()}"
        for term, fields in there.get(match, {}).items():
            if term.split(SEPARATOR)[0] != classifier:
                continue
            group = there.get("term-action", {}).get(term, {}).get("target-group", "")
            to = there.get("forwarding-group", {}).get(group, {})
            number = _number(to.get("output-queue", to.get("unicast-output-queue", "")), there)
            points = fields.get("dscp-set", fields.get("dscp", "")).split(",")
            if number is not None:
                found |= {int(each): (number, group) for each in points if each.isdecimal()}
    return found


def keep(intent: Intent, rendered: State, groups: Mapping[int, str]) -> dict[Place, str]:
    """The rendered state, with code points sent to their foreign forwarding groups in `groups`."""
    state = dict(rendered)
    sets = [each for each in state if each.field == "dscp-set"]
    for place in sets:
        left = [each for each in state[place].split(",") if int(each) not in groups]
        if left:
            state[place] = ",".join(left)
        else:
            gone = {("term", place.name), ("term-action", place.name), (place.kind, place.name)}
            state = {each: state[each] for each in state if (each.kind, each.name) not in gone}
    for family in FAMILIES:
        for group in sorted({*groups.values()}):
            points = sorted(dscp for dscp, each in groups.items() if each == group)
            name = f"{intent.prefix}{KEPT}{group}"
            if is_ours(intent, group):
                name = group
            term = f"{classifier_name(intent, family)}{SEPARATOR}{name}"
            where = Place(f"term-{family.lower()}", term, "dscp-set")
            have = [int(each) for each in state.get(where, "").split(",") if each]
            state[Place("term", term, "")] = ""
            state[where] = ",".join(map(str, sorted({*have, *points})))
            state[Place("term-action", term, "target-group")] = group
    used = {state[each] for each in state if each.field in ("target-group", "queue")}
    unused = {each.name for each in state if each.kind == "forwarding-group"} - used
    whole = ("queue", "forwarding-group")
    return {
        each: state[each] for each in state if each.kind not in whole or each.name not in unused
    }


def left_without(there: Tables, changes: Sequence[Change]) -> Iterator[str]:
    """Problems of ports that would lose the classifier of a kept queue."""
    feeds = {
        name.split(SEPARATOR)[0]: fields.get("target-group", "")
        for name, fields in there.get("term-action", {}).items()
        if KEPT in name
    }
    for change in changes:
        group = feeds.get(change.before or "")
        if group and change.place.kind == "interface-classifier" and change.after is None:
            yield (
                f"kept: {change.place.name.split(SEPARATOR)[0]}: the plan would remove "
                f"{change.before!r}, which sends code points to {group!r}, a kept queue"
            )


def classifier_name(intent: Intent, family: str) -> str:
    """The name of switchcfg's classifier for an address family."""
    return intent.prefix if family == FAMILIES[0] else f"{intent.prefix}-{family}"
