"""OpenConfig QoS over gNMI: config containers as objects, their leaves as fields. Pure.

Model: openconfig-qos 1.0.0 (2025-12). It knows one curve per queue, no drop precedence, no
ECN thresholds apart from those of dropping, and nothing of ECMP.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from switchcfg.errors import BadState
from switchcfg.intent.intent import Device, Intent, PortGroup
from switchcfg.plan.queues import Abilities, Layout, Queue
from switchcfg.plan.state import Change, Owns, Place, State, after, objects
from switchcfg.platforms.platform import (
    Rendered,
    Step,
    group_name,
    is_ours,
    read_json,
    render_groups,
)

ABLE: Final = Abilities(curves=1, own_mark=False, spray=())
ROOT: Final = "openconfig-qos:qos"
SEPARATOR: Final = "|"  # between the keys of a name

# Kind -> its config container under /qos; {} takes the next part of a name.
PATHS: Final[Mapping[str, str]] = {
    "queue": "queues/queue[name={}]",
    "forwarding-group": "forwarding-groups/forwarding-group[name={}]",
    "classifier": "classifiers/classifier[name={}]",
    "term": "classifiers/classifier[name={}]/terms/term[id={}]",
    "term-match": "classifiers/classifier[name={}]/terms/term[id={}]/conditions/ipv4",
    "term-action": "classifiers/classifier[name={}]/terms/term[id={}]/actions",
    "scheduler-policy": "scheduler-policies/scheduler-policy[name={}]",
    "scheduler": "scheduler-policies/scheduler-policy[name={}]/schedulers/scheduler[sequence={}]",
    "scheduler-input": "scheduler-policies/scheduler-policy[name={}]/schedulers/"
    "scheduler[sequence={}]/inputs/input[id={}]",
    "curve": "queue-management-profiles/queue-management-profile[name={}]",
    "curve-wred": "queue-management-profiles/queue-management-profile[name={}]/wred/uniform",
    "interface": "interfaces/interface[interface-id={}]",
    "interface-classifier": "interfaces/interface[interface-id={}]/input/classifiers/"
    "classifier[type={}]",
    "interface-scheduler": "interfaces/interface[interface-id={}]/output/scheduler-policy",
    "interface-queue": "interfaces/interface[interface-id={}]/output/queues/queue[name={}]",
}
# How RFC 7951 writes a leaf: 64-bit numbers are strings, lists are lists.
INTEGERS: Final = ("queue-id", "sequence", "max-drop-probability-percent")
FLAGS: Final = ("enable-ecn", "drop")
INTEGER_LISTS: Final = ("dscp-set",)
REVERT: Final = "revert: gNMI has no commit that reverts; the host that applies does it instead"
_SEGMENT: Final = re.compile(r"([\w-]+)(?:\[([\w-]+)=(\{\})\])?")


class OpenConfig:
    """Whatever serves openconfig-qos over gNMI."""

    name: Final = "openconfig"

    def render(self, intent: Intent, device: Device) -> Rendered:
        def state_of(intent: Intent, group: PortGroup, layout: Layout) -> State:
            return dict([*_global(intent, layout), *_group(intent, group, layout)])

        found = render_groups(intent, device, ABLE, state_of)
        buffers = "shares of the buffer: the model's allocation profiles differ by vendor"
        return Rendered(found.state, (*found.degraded, buffers, REVERT))

    def owns(self, intent: Intent) -> Owns:
        def owns(place: Place, value: str) -> bool:
            if not place.kind.startswith("interface"):
                return is_ours(intent, place.name.split(SEPARATOR)[0])
            return is_ours(intent, place.name.rpartition(SEPARATOR)[2]) or is_ours(intent, value)

        return owns

    def write(self, state: State) -> str:
        return json.dumps(tree(state), indent=2) + "\n"

    def read(self, text: str) -> State:
        root = read_json(text, "the device's answer").get(ROOT, {})
        out: dict[Place, str] = {}
        for kind, path in PATHS.items():
            for name, config in _find(root, path.split("/"), ()):
                for leaf, value in config.items():
                    out[Place(kind, SEPARATOR.join(name), leaf)] = _from_json(value)
        return out

    def check(self, state: State, device: Device) -> Sequence[str]:
        return ()

    def restore(self, before: State, changes: Sequence[Change]) -> str:
        """A Set: it does no harm where nothing was done yet, as deletes need not find anything."""
        [back] = self.steps(after(before, changes), [change.reverse() for change in changes])
        return back.payload

    def steps(self, present: State, changes: Sequence[Change]) -> Sequence[Step]:
        """One Set, which the device does wholly or not at all: delete comes first in it."""
        then = after(present, changes)
        kept = {(kind, name) for kind, name, _ in objects(then)}
        touched = {(c.place.kind, c.place.name) for c in changes}
        deletes = [path(kind, name) for kind, name in sorted(touched - kept)]
        deletes += [
            f"{path(c.place.kind, c.place.name)}/config/{c.place.field}"
            for c in changes
            if c.after is None and (c.place.kind, c.place.name) in kept
        ]
        updates = {
            f"{path(kind, name)}/config": {leaf: _to_json(leaf, fields[leaf]) for leaf in fields}
            for kind, name, fields in objects(then)
            if (kind, name) in touched
        }
        body = {"delete": _outermost(deletes), "update": updates}
        return (Step("gNMI Set", json.dumps(body, indent=2) + "\n"),)


def path(kind: str, name: str) -> str:
    """The gNMI path of an object, without its config container."""
    return f"{ROOT}/" + PATHS[kind].format(*name.split(SEPARATOR))


def tree(state: State) -> dict[str, Any]:
    """The RFC 7951 JSON of /qos."""
    root: dict[str, Any] = {}
    for kind, name, fields in objects(state):
        at, keys = root, iter(name.split(SEPARATOR))
        for segment in PATHS[kind].split("/"):
            container, key = _segment(segment)
            if key is None:
                at = at.setdefault(container, {})
                continue
            value = next(keys)
            rows = at.setdefault(container, [])
            at = next((row for row in rows if row[key] == _to_json(key, value)), {})
            if not at:
                at = {key: _to_json(key, value)}
                rows.append(at)
        at["config"] = {leaf: _to_json(leaf, value) for leaf, value in fields.items()}
    return {ROOT: root}


def _segment(text: str) -> tuple[str, str | None]:
    found = _SEGMENT.fullmatch(text)
    assert found, text  # noqa: S101  # PATHS is ours
    return found[1], found[2]


def _find(
    at: Any, segments: Sequence[str], name: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """(keys, config) of each object on a path.

    Raises: BadState where the tree has another form.
    """
    if not isinstance(at, dict):
        raise BadState(f"{'/'.join(segments)}: the device's answer is no container there")
    if not segments:
        config = at.get("config", {})
        if not isinstance(config, dict):
            raise BadState(f"{SEPARATOR.join(name)}: config is no container")
        yield name, config
        return
    container, key = _segment(segments[0])
    if container not in at:
        return
    if key is None:
        yield from _find(at[container], segments[1:], name)
        return
    if not isinstance(at[container], list):
        raise BadState(f"{container}: the device's answer is no list there")
    for row in at[container]:
        if not isinstance(row, dict) or key not in row:
            raise BadState(f"{container}: an entry without its key {key}")
        yield from _find(row, segments[1:], (*name, str(row[key])))


def _to_json(leaf: str, value: str) -> Any:
    if leaf in INTEGERS:
        return int(value)
    if leaf in FLAGS:
        return value == "true"
    if leaf in INTEGER_LISTS:
        return [int(each) for each in value.split(",")]
    return value


def _from_json(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(_from_json(each) for each in value)
    return str(value)


def _outermost(paths: Sequence[str]) -> list[str]:
    """Without those that go with another one."""
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
    yield Place("classifier", intent.prefix, "name"), intent.prefix
    yield Place("classifier", intent.prefix, "type"), "IPV4"
    for queue, dscps in points.items():
        name = _queue_name(intent, queue)
        term = f"{intent.prefix}{SEPARATOR}{name}"
        yield Place("queue", name, "name"), name
        yield Place("queue", name, "queue-id"), str(queue)
        yield Place("forwarding-group", name, "name"), name
        yield Place("forwarding-group", name, "output-queue"), name
        yield Place("term", term, "id"), name
        yield Place("term-match", term, "dscp-set"), ",".join(map(str, dscps))
        yield Place("term-action", term, "target-group"), name


def _group(intent: Intent, group: PortGroup, layout: Layout) -> Iterator[tuple[Place, str]]:
    policy = group_name(intent, group)
    yield Place("scheduler-policy", policy, "name"), policy
    for sequence, queue in enumerate(layout.queues, start=1):
        yield from _scheduler(f"{policy}{SEPARATOR}{sequence}", sequence, intent, queue)
        if queue.mark:
            yield from _curve(f"{policy}-Q{queue.index}", queue)
    for port in group.ports:
        yield Place("interface", port, "interface-id"), port
        yield Place("interface-classifier", f"{port}{SEPARATOR}IPV4", "type"), "IPV4"
        yield Place("interface-classifier", f"{port}{SEPARATOR}IPV4", "name"), intent.prefix
        yield Place("interface-scheduler", port, "name"), policy
        for queue in layout.queues:
            name = _queue_name(intent, queue.index)
            where = f"{port}{SEPARATOR}{name}"
            yield Place("interface-queue", where, "name"), name
            if queue.mark:
                profile = f"{policy}-Q{queue.index}"
                yield Place("interface-queue", where, "queue-management-profile"), profile


def _scheduler(
    where: str, sequence: int, intent: Intent, queue: Queue
) -> Iterator[tuple[Place, str]]:
    name = _queue_name(intent, queue.index)
    yield Place("scheduler", where, "sequence"), str(sequence)
    yield Place("scheduler", where, "priority"), "STRICT"
    yield Place("scheduler-input", f"{where}{SEPARATOR}{name}", "id"), name
    yield Place("scheduler-input", f"{where}{SEPARATOR}{name}", "input-type"), "QUEUE"
    yield Place("scheduler-input", f"{where}{SEPARATOR}{name}", "queue"), name


def _curve(profile: str, queue: Queue) -> Iterator[tuple[Place, str]]:
    assert queue.mark  # noqa: S101  # asked by the caller
    yield Place("curve", profile, "name"), profile
    for leaf, value in (
        ("min-threshold", str(queue.mark[0])),
        ("max-threshold", str(queue.mark[1])),
        ("max-drop-probability-percent", "100"),
        ("enable-ecn", "true"),
        ("drop", "true"),
    ):
        yield Place("curve-wred", profile, leaf), value
