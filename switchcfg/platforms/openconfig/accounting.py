"""The account of a device's QoS tree: each configured leaf is read, of no matter, or unread. Pure.

Sources: openconfig-qos 2.2.0 with its submodules elements, interfaces and mem-mgmt;
openconfig-packet-match; READMEs of featureprofiles (feature/qos).
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from switchcfg.plan.account import SWITCH, Item, KnownLine, Reading, account, reached
from switchcfg.plan.state import State, tables
from switchcfg.platforms.openconfig.tree import (
    FIELDS,
    KINDS,
    SEPARATOR,
    from_json,
    leaves,
    objects_of,
    root_of,
)

# First list below /qos -> the kind of owner of its leaves; "": the port itself
_OWNERS: Final = {
    "interfaces": "",
    "queues": "queue",
    "classifiers": "classifier",
    "forwarding-groups": "forwarding-group",
    "scheduler-policies": "scheduler-policy",
    "queue-management-profiles": "queue-management-profile",
    "buffer-allocation-profiles": "buffer-allocation-profile",
}
_KEY: Final = re.compile(r"\[(.*)\]")
_POINTS: Final = re.compile(r"\d+(,\d+)*")
_VENDOR: Final = re.compile(r".*/(?!openconfig-)[\w-]+:[\w-]+(\[.*)?( .*|/.*)?")


def _known(shape: str, why: str) -> KnownLine:
    return KnownLine(re.compile(shape), why)


_PORT: Final = r"interfaces/interface\[[^\]]*\]"
_TERM: Final = r"classifiers/classifier\[[^\]]*\]/terms/term\[[^\]]*\]"
IDLE: Final = (
    _known(
        rf"(buffer-allocation-profiles/.*|{_PORT}/(input|output)/config/"
        r"(unicast-|multicast-)?buffer-allocation-profile .*)",
        "memory, which a plan does not change",
    ),
    _known(rf"{_TERM}/conditions/mpls/.*", "of MPLS"),
    _known(r"packet-trim/.*", "cuts packets for which a queue has no memory, as before"),
)
REFUSED: Final = (
    _known(
        rf"{_PORT}/output/classifiers/.*",
        "a classifier on the way out can rewrite code points: remove it, or name the port in "
        "[keep] ports",
    ),
    _known(
        rf"{_PORT}/input/scheduler-policy/.*",
        "a policer can drop or rewrite packets: remove it, or name the port in [keep] ports",
    ),
    _known(
        r".*/(remark|conform-action|exceed-action|violate-action)/config/set-.*",
        "rewrites code points, and dlcpd's must leave as they came: remove it",
    ),
    _known(_VENDOR.pattern, "of a vendor's module, which switchcfg does not read"),
)


def read(document: Mapping[str, Any]) -> Reading:
    """All objects in the answer to a Get of /qos, and its leaves that are not understood.

    Raises: BadState.
    """
    root = root_of(document)
    found = account(_items(root), lambda line, _: _is_known(*line), idle=IDLE, refused=REFUSED)
    return Reading(objects_of(root) | found, found.lines, found.unread)


def _items(root: Any) -> Iterator[tuple[Item, tuple[str, str, str]]]:
    """(item, (path without keys, leaf, value)) of each configured leaf."""
    for where, leaf, value in leaves(root):
        parts = where.split("/")
        shown = from_json(leaf, value)
        text = f"{where}/{leaf} {shown}"
        plain = "/".join(_KEY.sub("", part) for part in parts)
        owner = _owner(parts)
        mine = "/".join(parts[2:]) if owner else where
        yield Item((owner,), text, f"{mine}/{leaf} {shown}"), (plain, leaf, shown)


def _owner(parts: list[str]) -> str:
    kind = _OWNERS.get(parts[0])
    found = _KEY.search(parts[1]) if len(parts) > 1 else None
    if kind is None or found is None:
        return SWITCH
    return f"{kind} {found[1]}".strip()


def _is_known(where: str, leaf: str, value: str) -> bool:
    """Whether switchcfg understands a leaf: of an object, or the key of an entry."""
    kind = KINDS.get(where.removesuffix("/config"))
    if where == "interfaces/interface/config":
        return leaf == "interface-id"
    if kind is None or leaf not in FIELDS[kind]:
        return False
    return leaf not in ("dscp", "dscp-set") or bool(_POINTS.fullmatch(value))


# (kind of object, kind of its owner, leaf, kind of the owner that the leaf binds); leaf "": the key
_REFERS: Final = (
    ("interface-classifier", "", "name", "classifier"),
    ("interface-scheduler", "", "name", "scheduler-policy"),
    ("interface-queue", "", "", "queue"),
    ("interface-queue", "", "queue-management-profile", "queue-management-profile"),
    ("interface-queue", "", "buffer-allocation-profile", "buffer-allocation-profile"),
    ("term-action", "classifier", "target-group", "forwarding-group"),
    ("forwarding-group", "forwarding-group", "output-queue", "queue"),
    ("forwarding-group", "forwarding-group", "unicast-output-queue", "queue"),
    ("scheduler-input", "scheduler-policy", "queue", "queue"),
)


def near(ports: Collection[str], present: State) -> set[str]:
    """The whole switch, the ports, their subinterfaces, and all objects that they use."""
    there = tables(present)
    refers: dict[str, set[str]] = {}
    for kind, owner, leaf, bound in _REFERS:
        for name, fields in there.get(kind, {}).items():
            first, _, last = name.partition(SEPARATOR)
            if value := fields.get(leaf) if leaf else last:
                refers.setdefault(f"{owner} {first}".strip(), set()).add(f"{bound} {value}")
    ids = [
        name
        for name, fields in there.get("interface-ref", {}).items()
        if fields.get("interface") in ports
    ]
    below = tuple(f"{port}." for port in ports)  # by name, without an `interface-ref`
    ids += [owner for owner in refers if owner.startswith(below)]
    return reached([SWITCH, *ports, *ids], refers)
