"""Converts between the JSON of OpenConfig's /qos (RFC 7951) and objects. Pure.

A list's key is not a field: the entry's existence implies it. An interface's own entry is not an
object, nor is an interface-ref that repeats the key: both are removed with the last binding of the
interface.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from switchcfg.errors import BadState
from switchcfg.plan.state import Place, State, natural, objects

MODULE: Final = "openconfig-qos"
ROOT: Final = f"{MODULE}:qos"
FAMILIES: Final = ("IPV4", "IPV6")  # a classifier has one of them
SEPARATOR: Final = "|"  # between the keys of a name

# Kind -> its config container under /qos; {} takes the next part of a name.
PATHS: Final[Mapping[str, str]] = {
    "queue": "queues/queue[name={}]",
    "forwarding-group": "forwarding-groups/forwarding-group[name={}]",
    "classifier": "classifiers/classifier[name={}]",
    "term": "classifiers/classifier[name={}]/terms/term[id={}]",
    "term-ipv4": "classifiers/classifier[name={}]/terms/term[id={}]/conditions/ipv4",
    "term-ipv6": "classifiers/classifier[name={}]/terms/term[id={}]/conditions/ipv6",
    "term-action": "classifiers/classifier[name={}]/terms/term[id={}]/actions",
    "scheduler-policy": "scheduler-policies/scheduler-policy[name={}]",
    "scheduler": "scheduler-policies/scheduler-policy[name={}]/schedulers/scheduler[sequence={}]",
    "scheduler-input": "scheduler-policies/scheduler-policy[name={}]/schedulers/"
    "scheduler[sequence={}]/inputs/input[id={}]",
    "scheduler-one-rate": "scheduler-policies/scheduler-policy[name={}]/schedulers/"
    "scheduler[sequence={}]/one-rate-two-color",
    "scheduler-two-rate": "scheduler-policies/scheduler-policy[name={}]/schedulers/"
    "scheduler[sequence={}]/two-rate-three-color",
    "scheduler-output": "scheduler-policies/scheduler-policy[name={}]/schedulers/"
    "scheduler[sequence={}]/output",
    "curve": "queue-management-profiles/queue-management-profile[name={}]",
    "curve-wred": "queue-management-profiles/queue-management-profile[name={}]/wred/uniform",
    "curve-red": "queue-management-profiles/queue-management-profile[name={}]/red/uniform",
    "interface-ref": "interfaces/interface[interface-id={}]/interface-ref",
    "interface-classifier": "interfaces/interface[interface-id={}]/input/classifiers/"
    "classifier[type={}]",
    "interface-scheduler": "interfaces/interface[interface-id={}]/output/scheduler-policy",
    "interface-queue": "interfaces/interface[interface-id={}]/output/queues/queue[name={}]",
}
_LIMITS: Final = (
    "cir", "cir-pct", "cir-pct-remaining", "pir", "pir-pct", "pir-pct-remaining", "bc", "be",
    "queuing-behavior", "max-queue-depth-bytes", "max-queue-depth-packets",
    "max-queue-depth-percent",
)  # fmt: skip
_CURVE: Final = (
    "min-threshold", "max-threshold", "min-threshold-percent", "max-threshold-percent",
    "max-drop-probability-percent", "weight", "enable-ecn", "drop",
)  # fmt: skip
# Kind -> its leaves. Others are not read (`switchcfg.platforms.openconfig.accounting`).
FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "queue": ("name", "queue-id"),
    "forwarding-group": (
        "name", "output-queue", "unicast-output-queue", "multicast-output-queue", "fabric-priority",
    ),
    "classifier": ("name", "type"),
    "term": ("id",),
    "term-ipv4": ("dscp", "dscp-set"),
    "term-ipv6": ("dscp", "dscp-set"),
    "term-action": ("target-group",),
    "scheduler-policy": ("name",),
    "scheduler": ("sequence", "type", "priority"),
    "scheduler-input": ("id", "input-type", "queue", "weight"),
    "scheduler-one-rate": _LIMITS,
    "scheduler-two-rate": _LIMITS,
    "scheduler-output": ("output-type", "child-scheduler", "output-fwd-group"),
    "curve": ("name",),
    "curve-wred": _CURVE,
    "curve-red": _CURVE,
    "interface-ref": ("interface", "subinterface"),
    "interface-classifier": ("type", "name"),
    "interface-scheduler": ("name",),
    "interface-queue": ("name", "queue-management-profile", "buffer-allocation-profile"),
}  # fmt: skip
KINDS: Final = {re.sub(r"\[[^\]]*\]", "", path): kind for kind, path in PATHS.items()}
INTERFACE: Final = "interfaces/interface[interface-id={}]"
OTHER: Final = "interface-other"  # other leaves of an interface: read, never written
# Top-level names of /qos: they identify its value in an answer without its name.
TOP: Final = frozenset(
    ("config", "interfaces", "classifiers", "forwarding-groups", "queues", "scheduler-policies",
     "buffer-allocation-profiles", "queue-management-profiles", "packet-trim", "state")
)  # fmt: skip
# How RFC 7951 writes a leaf: 64-bit numbers are strings, lists are lists.
INTEGERS: Final = (
    "queue-id", "sequence", "subinterface", "max-drop-probability-percent", "fabric-priority",
    "min-threshold-percent", "max-threshold-percent", "cir-pct", "cir-pct-remaining", "pir-pct",
    "pir-pct-remaining", "bc", "be", "max-queue-depth-bytes", "max-queue-depth-packets",
    "max-queue-depth-percent",
)  # fmt: skip
FLAGS: Final = ("enable-ecn", "drop")
INTEGER_LISTS: Final = ("dscp-set",)
IDENTITIES: Final = (
    "type",
    "input-type",
    "priority",
    "output-type",
)  # may have a module name as prefix
KEYS: Final = ("interface-id", "name", "id", "type", "sequence")  # of the model's lists
MAX_DEPTH: Final = 16  # of containers below an interface or /qos; the model has 10
_SEGMENT: Final = re.compile(r"([\w-]+)(?:\[([\w-]+)=(\{\})\])?")
SCHEDULERS: Final = ("ONE_RATE_TWO_COLOR", "TWO_RATE_THREE_COLOR")  # identities, not enums
_QUALIFIED: Final = re.compile(r"openconfig-[\w-]+:([\w-]+)")


def path(kind: str, name: str) -> str:
    """The gNMI path of an object, without its config container."""
    return f"{ROOT}/" + PATHS[kind].format(*name.split(SEPARATOR))


def tree(state: State) -> dict[str, Any]:
    """The RFC 7951 JSON of /qos."""
    root: dict[str, Any] = {}
    for kind, name, fields in objects(state):
        at, keys = root, iter(name.split(SEPARATOR))
        for part in PATHS[kind].split("/"):
            container, key = _segment(part)
            if key is None:
                at = at.setdefault(container, {})
                continue
            value = next(keys)
            rows = at.setdefault(container, [])
            at = next((row for row in rows if row[key] == _to_json(key, value)), {})
            if not at:
                at = {key: _to_json(key, value), "config": {key: _to_json(key, value)}}
                if key == "interface-id":
                    at["interface-ref"] = {"config": {"interface": value}}
                rows.append(at)
        at.setdefault("config", {}).update(config_of(kind, name, fields))
    return {ROOT: root}


def config_of(kind: str, name: str, fields: Mapping[str, str]) -> dict[str, Any]:
    """The leaves of an object, its key included."""
    _, key = _segment(PATHS[kind].rpartition("/")[2])
    out = {key: _to_json(key, name.rpartition(SEPARATOR)[2])} if key else {}
    return out | {leaf: _to_json(leaf, fields[leaf]) for leaf in fields if leaf}


def lists(kind: str, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, key leaf) of each list entry on the path to an object."""
    if kind == OTHER:
        kind, name = "interface-ref", name.split(SEPARATOR, maxsplit=1)[0]
    at, keys = ROOT, iter(name.split(SEPARATOR))
    for part in PATHS[kind].split("/"):
        _, key = _segment(part)
        if key is None:
            at = f"{at}/{part}"
        else:
            value = next(keys)
            at = f"{at}/{part.format(value)}"
            yield at, {key: _to_json(key, value)}


def objects_of(root: Any) -> dict[Place, str]:
    """All objects below /qos.

    Raises: BadState.
    """
    out: dict[Place, str] = {}
    for kind, where in PATHS.items():
        _, key = _segment(where.rpartition("/")[2])
        for name, config in _find(root, where.split("/"), ()):
            known = [leaf for leaf in FIELDS[kind] if leaf in config and leaf != key]
            fields = {leaf: from_json(leaf, config[leaf]) for leaf in known}
            if kind == "interface-ref" and _says_its_key(name[0], fields):
                continue
            if not fields and key and kind != "interface-classifier":
                fields = {"": ""}
            out |= {Place(kind, SEPARATOR.join(name), leaf): fields[leaf] for leaf in fields}
    for name, entry in _find(root, INTERFACE.split("/"), (), whole=True):
        for below, value in _rest(entry):
            out[Place(OTHER, SEPARATOR.join((*name, below)), "")] = value
    return out


def _segment(text: str) -> tuple[str, str | None]:
    """(container or list, key of the list) of a part of a path."""
    found = _SEGMENT.fullmatch(text)
    assert found, text  # noqa: S101  # PATHS is a constant
    return found[1], found[2]


def root_of(document: Mapping[str, Any]) -> Any:
    """The value of /qos, with or without root and module names. A device may answer with it, or
    with a tree around it; `{}`: no QoS.

    Raises: BadState for the answer to another request.
    """
    for name in (ROOT, "qos"):
        if name in document:
            return document[name]
    unknown = [each for each in document if each.removeprefix(f"{MODULE}:") not in TOP]
    if unknown:
        shown = ", ".join(map(repr, unknown[:3]))
        raise BadState(f"the device's answer is not the result of a Get of /{ROOT}: it has {shown}")
    return document


def _members(at: Mapping[str, Any]) -> dict[str, Any]:
    """Members by name, without the module of OpenConfig."""
    return {found[1] if (found := _QUALIFIED.fullmatch(name)) else name: at[name] for name in at}


def leaves(root: Any) -> Iterator[tuple[str, str, Any]]:
    """(path with keys, leaf, value) of every configured leaf below /qos, of every leaf of a
    vendor's module, and of every other leaf that is no key of a list.

    Raises: BadState for too many levels.
    """
    yield from _leaves(root, "", MAX_DEPTH)


def _leaves(at: Any, where: str, depth: int) -> Iterator[tuple[str, str, Any]]:
    if depth == 0:
        raise BadState(f"{where}: nested too deeply")
    for name, value in _members(at).items() if isinstance(at, dict) else ():
        below = f"{where}/{name}".lstrip("/")
        if name == "state":
            continue
        if isinstance(value, dict):
            yield from _leaves(value, below, depth - 1)
        elif isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
            for row in value:
                keys = [
                    from_json(leaf, key)
                    for leaf, key in _members(row).items()
                    if ":" not in leaf and not isinstance(key, dict | list)
                ]
                yield from _leaves(row, f"{below}[{','.join(keys)}]", depth - 1)
        elif "/config" in f"/{where}" or ":" in below or name not in KEYS:
            yield where, name, value


def _find(
    at: Any, segments: Sequence[str], name: tuple[str, ...], *, whole: bool = False
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """(keys, config) of each object on a path; with `whole`, all members instead of config.

    Raises: BadState if the tree has another form.
    """
    if not isinstance(at, dict):
        raise BadState(f"{'/'.join(segments)}: the device's answer has no container there")
    at = _members(at)
    if not segments:
        config = at if whole else at.get("config", {})
        if not isinstance(config, dict):
            raise BadState(f"{SEPARATOR.join(name)}: config is not a container")
        if whole or "config" in at:  # an entry without config is operational state
            yield name, _members(config)
        return
    container, key = _segment(segments[0])
    if container not in at:
        return
    if key is None:
        yield from _find(at[container], segments[1:], name, whole=whole)
        return
    if not isinstance(at[container], list):
        raise BadState(f"{container}: the device's answer has no list there")
    for row in at[container]:
        found = _members(row) if isinstance(row, dict) else {}
        if key not in found:
            raise BadState(f"{container}: an entry without its key {key}")
        below = (*name, from_json(key, found[key]))
        yield from _find(row, segments[1:], below, whole=whole)


# Paths below an interface that have a kind of object.
_KNOWN: Final = frozenset(
    ("interface-ref", "output/scheduler-policy", "input/classifiers", "output/queues")
)


def _rest(at: Any) -> Iterator[tuple[str, str]]:
    """(path, value) of every configured leaf of an interface that belongs to no kind of object.

    Raises: BadState for too many levels.
    """
    for where, leaf, value in leaves(at):
        below = f"{where}/{leaf}".lstrip("/")
        known = any(f"{where}/".startswith(f"{each}/") for each in _KNOWN)
        if below != "config/interface-id" and not known:
            yield below, from_json(leaf, value)


def _says_its_key(interface: str, fields: Mapping[str, str]) -> bool:
    """Whether an interface-ref only repeats the key; the model has no subinterface for a port."""
    return (
        fields.get("interface", interface) == interface and fields.get("subinterface", "0") == "0"
    )


def _to_json(leaf: str, value: str) -> Any:
    if leaf in INTEGERS:
        return int(value)
    if leaf in FLAGS:
        return value == "true"
    if leaf in INTEGER_LISTS:
        return [int(each) for each in value.split(",")]
    return f"{MODULE}-types:{value}" if leaf == "type" and value in SCHEDULERS else value


def from_json(leaf: str, value: Any) -> str:
    """A value in one spelling: lists in natural order, identities without module names."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(sorted((from_json(leaf, each) for each in value), key=natural))
    text = str(value)
    found = _QUALIFIED.fullmatch(text) if leaf in IDENTITIES else None
    return found[1] if found else text
