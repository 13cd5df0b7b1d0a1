"""Platform OpenConfig QoS over gNMI: config containers as objects, leaves as fields. Pure.

Model: openconfig-qos 2.2.0 (2026-04). It has one curve per queue, no drop precedence, no separate
ECN thresholds, no flow control and no ECMP.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final

from switchcfg.intent.intent import Device, Intent, PortGroup
from switchcfg.plan.account import UNREAD, Reading
from switchcfg.plan.kept import kept
from switchcfg.plan.queues import Abilities, Layout, Queue
from switchcfg.plan.state import Change, Owns, Place, State, after, objects, tables
from switchcfg.platforms.openconfig import accounting
from switchcfg.platforms.openconfig.existing import (
    classifier_name,
    keep,
    left_without,
    others,
    ways,
)
from switchcfg.platforms.openconfig.tree import (
    FAMILIES,
    INTEGER_LISTS,
    INTERFACE,
    OTHER,
    ROOT,
    SEPARATOR,
    config_of,
    lists,
    path,
    tree,
)
from switchcfg.platforms.platform import (
    Fit,
    Rendered,
    Step,
    Taken,
    group_name,
    is_ours,
    read_json,
    render_groups,
)

ABLE: Final = Abilities(
    curves=1, own_mark=False, spray=(), no_lossless="the model has no flow control"
)
REVERT: Final = (
    "revert: gNMI has no commit that reverts; the host that runs `switchcfg apply` reverts instead"
)


class OpenConfig:
    """Any device that serves openconfig-qos over gNMI."""

    name: Final = "openconfig"
    able: Final = ABLE

    def render(self, intent: Intent, device: Device) -> Rendered:
        def state_of(intent: Intent, group: PortGroup, layout: Layout) -> State:
            return dict([*_global(intent, layout), *_group(intent, group, layout)])

        found = render_groups(intent, device, ABLE, state_of)
        buffers = "shares of the buffer: the model's allocation profiles differ by vendor"
        return Rendered(found.state, (*found.degraded, buffers, REVERT))

    def owns(self, intent: Intent) -> Owns:
        def owns(place: Place, value: str) -> bool:
            if place.kind in (OTHER, UNREAD):
                return False
            if not place.kind.startswith("interface"):
                return is_ours(intent, place.name.split(SEPARATOR)[0])
            return is_ours(intent, place.name.rpartition(SEPARATOR)[2]) or is_ours(intent, value)

        return owns

    def fit(self, intent: Intent, device: Device, rendered: State, present: State) -> Fit:
        there = tables(present)
        problems = [each for port in device.ports for each in others(intent, port, there)]
        groups: dict[int, str] = {}
        for port in device.ports:
            through = ways(port, there)
            keeps, wrong = kept(intent, port, {dscp: (q, q) for dscp, (q, _) in through.items()})
            problems += wrong
            to = {dscp: through[dscp][1] for dscp in keeps}
            # Reuse the foreign forwarding group: a second queue of its number would conflict.
            theirs = {q: group for q, group in through.values() if not is_ours(intent, group)}
            to |= {dscp: theirs[q] for dscp, q in intent.keep.dscp.items() if q in theirs}
            problems += [
                (
                    f"kept-dscp: code point {dscp} goes to {to[dscp]!r} on {port} and to "
                    f"{groups[dscp]!r} on another port: one classifier cannot do both"
                )
                for dscp in to
                if groups.get(dscp, to[dscp]) != to[dscp]
            ]
            groups |= to
        state = keep(intent, rendered, groups)
        return Fit(state, frozenset(), tuple(dict.fromkeys(problems)))

    def takes(self, present: State, changes: Sequence[Change]) -> Taken:
        return Taken(tuple(left_without(tables(present), changes)), ())

    def write(self, state: State) -> str:
        return json.dumps(tree(state), indent=2) + "\n"

    def read(self, text: str) -> State:
        state = accounting.read(read_json(text, "the device's answer"))
        return Reading.from_text(state, text)

    def near(self, device: Device, present: State) -> Collection[str]:
        return accounting.near(device.ports, present)

    def check(self, state: State, device: Device) -> Sequence[str]:
        return ()

    def restore(self, before: State, changes: Sequence[Change]) -> str:
        """The body of a Set. It is harmless before any step: a delete may match nothing."""
        [back] = self.steps(after(before, changes), [change.reverse() for change in changes])
        return back.payload

    def steps(self, present: State, changes: Sequence[Change]) -> Sequence[Step]:
        """One Set, an atomic transaction; its deletes come first."""
        present = {place: value for place, value in present.items() if place.kind != UNREAD}
        then = after(present, changes)
        had, has = ({(kind, name) for kind, name, _ in objects(each)} for each in (present, then))
        touched = {(c.place.kind, c.place.name) for c in changes}
        deletes = [path(kind, name) for kind, name in touched - has]
        deletes += [f"{ROOT}/{INTERFACE.format(port)}" for port in _ports(touched) - _ports(has)]
        deletes += [
            f"{path(c.place.kind, c.place.name)}/config/{c.place.field}"
            for c in changes
            if c.before and c.place.field and (c.place.kind, c.place.name) in has
            # An update adds to a list instead of replacing it, so delete the list first.
            if c.after is None or c.place.field in INTEGER_LISTS
        ]
        updates: dict[str, dict[str, Any]] = {}
        known = {above for each in had for above, _ in lists(*each)}
        for kind, name, fields in objects(then):
            if (kind, name) not in touched:
                continue
            for above, key in lists(kind, name):
                if above not in known:
                    updates.setdefault(f"{above}/config", {}).update(key)
            updates.setdefault(f"{path(kind, name)}/config", {}).update(
                config_of(kind, name, fields)
            )
        for port in sorted(_ports(touched & has) - _ports(had)):
            where = f"{ROOT}/{INTERFACE.format(port)}/interface-ref/config"
            updates.setdefault(where, {"interface": port})
        body = {"delete": _outermost(deletes), "update": updates}
        return (Step("gNMI Set", json.dumps(body, indent=2) + "\n"),)


def _ports(found: Iterable[tuple[str, str]]) -> set[str]:
    """Interfaces with a bound object, among (kind, name) of objects."""
    return {name.split(SEPARATOR)[0] for kind, name in found if kind.startswith("interface")}


def _outermost(paths: Sequence[str]) -> list[str]:
    """The paths that are not below another one."""
    out: list[str] = []
    for each in sorted(paths):
        if not out or not each.startswith(f"{out[-1]}/"):
            out.append(each)
    return out


# --- intent to state -----------------------------------------------------------------


def _queue_name(intent: Intent, index: int) -> str:
    return f"{intent.prefix}-Q{index}"


def _global(intent: Intent, layout: Layout) -> Iterator[tuple[Place, str]]:
    points: dict[int, list[int]] = {}
    for dscp, queue in sorted(layout.queue_of(intent).items()):
        points.setdefault(queue, []).append(dscp)
    for queue in points:
        name = _queue_name(intent, queue)
        yield Place("queue", name, "queue-id"), str(queue)
        yield Place("forwarding-group", name, "output-queue"), name
    for family in FAMILIES:
        classifier = classifier_name(intent, family)
        yield Place("classifier", classifier, "type"), family
        for queue, dscps in points.items():
            name = _queue_name(intent, queue)
            term = f"{classifier}{SEPARATOR}{name}"
            yield Place("term", term, ""), ""
            yield Place(f"term-{family.lower()}", term, "dscp-set"), ",".join(map(str, dscps))
            yield Place("term-action", term, "target-group"), name


def _group(intent: Intent, group: PortGroup, layout: Layout) -> Iterator[tuple[Place, str]]:
    policy = group_name(intent, group)
    yield Place("scheduler-policy", policy, ""), ""
    for sequence, queue in enumerate(layout.queues, start=1):
        yield from _scheduler(f"{policy}{SEPARATOR}{sequence}", intent, queue)
        if queue.mark:
            yield from _curve(f"{policy}-Q{queue.index}", queue)
    for port in group.ports:
        for family in FAMILIES:
            where = f"{port}{SEPARATOR}{family}"
            yield Place("interface-classifier", where, "name"), classifier_name(intent, family)
        yield Place("interface-scheduler", port, "name"), policy
        for queue in layout.queues:
            where = f"{port}{SEPARATOR}{_queue_name(intent, queue.index)}"
            if queue.mark:
                profile = f"{policy}-Q{queue.index}"
                yield Place("interface-queue", where, "queue-management-profile"), profile
            else:
                yield Place("interface-queue", where, ""), ""


def _scheduler(where: str, intent: Intent, queue: Queue) -> Iterator[tuple[Place, str]]:
    name = _queue_name(intent, queue.index)
    yield Place("scheduler", where, "priority"), "STRICT"
    yield Place("scheduler-input", f"{where}{SEPARATOR}{name}", "input-type"), "QUEUE"
    yield Place("scheduler-input", f"{where}{SEPARATOR}{name}", "queue"), name


def _curve(profile: str, queue: Queue) -> Iterator[tuple[Place, str]]:
    assert queue.mark  # noqa: S101  # the caller checks it
    yield Place("curve", profile, ""), ""
    for leaf, value in (
        ("min-threshold", str(queue.mark[0])),
        ("max-threshold", str(queue.mark[1])),
        ("max-drop-probability-percent", "100"),
        ("enable-ecn", "true"),
        ("drop", "true"),
    ):
        yield Place("curve-wred", profile, leaf), value
