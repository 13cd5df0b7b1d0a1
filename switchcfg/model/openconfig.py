"""Model of a switch with OpenConfig QoS, from the JSON of /qos. Pure.

Source: openconfig-qos 2.2.0. A classifier's first term that matches counts; a classifier of one IP
family stands for both where the other has none.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from switchcfg.model.values import (
    DSCPS,
    EITHER,
    NONE,
    PCPS,
    UNKNOWN,
    PortModel,
    SwitchModel,
    Treatment,
    Way,
    first_number,
    joined,
    port_model,
)

Node = Mapping[str, Any]
_MODULE: Final = re.compile(r"openconfig-[\w-]+:")
_SEGMENT: Final = re.compile(r"([^/\[]+)(?:\[([^=\]]+)=([^\]]*)\])?(?:/|$)")
FAMILIES: Final = ("IPV4", "IPV6")


def model(text: str, payloads: Sequence[str] = ()) -> SwitchModel:
    """The model of /qos after these Sets: their deletions, then their updates."""
    root = _plain(json.loads(text))
    root = root.get("qos", root)
    for payload in payloads:
        change = json.loads(payload)
        for path in change["delete"]:
            _delete(root, path)
        for path, leaves in change["update"].items():
            _down(root, _segments(path)).update(_plain(leaves))
    switch = _OpenConfigSwitch(root)
    return SwitchModel({name: switch.port(row) for name, row in switch.ports()}, switch.port({}))


def _plain(value: Any) -> Any:
    """The value with names without the modules of OpenConfig."""
    if isinstance(value, dict):
        return {_MODULE.sub("", name): _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return _MODULE.sub("", value) if isinstance(value, str) else value


def _segments(path: str) -> list[tuple[str, str, str]]:
    """(container or list, its key, the key's value) of a path below /qos."""
    return _SEGMENT.findall(path)[1:]


def _down(at: Any, segments: Sequence[tuple[str, str, str]]) -> Any:
    """The node at a path, made if it is not there."""
    for name, key, value in segments:
        if not key:
            at = at.setdefault(name, {})
            continue
        rows = at.setdefault(name, [])
        found = next((row for row in rows if str(row.get(key)) == value), None)
        if found is None:
            found = {key: value}
            rows.append(found)
        at = found
    return at


def _delete(root: Any, path: str) -> None:
    *above, (name, key, value) = _segments(path)
    at = _down(root, above)
    if key:
        at[name] = [row for row in at.get(name, []) if str(row.get(key)) != value]
    else:
        at.pop(name, None)


class _OpenConfigSwitch:
    """The lists of /qos by their keys."""

    def __init__(self, root: Node) -> None:
        self.root = root
        self.classifiers = _rows(root, "classifiers/classifier", "name")
        self.groups = _rows(root, "forwarding-groups/forwarding-group", "name")
        self.queues = _rows(root, "queues/queue", "name")
        self.policies = _rows(root, "scheduler-policies/scheduler-policy", "name")
        self.curves = _rows(root, "queue-management-profiles/queue-management-profile", "name")
        buffers = "buffer-allocation-profiles/buffer-allocation-profile"
        self.buffers = _rows(root, buffers, "name")

    def ports(self) -> Iterator[tuple[str, Node]]:
        """(port, its row); a row may refer to a port by another name."""
        for name, row in _rows(self.root, "interfaces/interface", "interface-id").items():
            said = _config(row, "interface-ref")
            other = str(said.get("subinterface", "0")) != "0"
            yield name if other else str(said.get("interface", name)), row

    def port(self, row: Node) -> PortModel:
        """The model of a port."""
        bound = _rows(row, "input/classifiers/classifier", "type")
        names = {
            family.lower(): str(_config(bound[family]).get("name", ""))
            for family in FAMILIES
            if family in bound
        }
        return port_model([*self._ways(names)], lambda tc: self._treatment(row, tc))

    def _ways(self, names: Mapping[str, str]) -> Iterator[Way]:
        for number in range(DSCPS):
            found = [self._class(family, name, number) for family, name in names.items()]
            groups = EITHER.join(dict.fromkeys(g for each in found for g in each[0]))
            yield Way(
                "DSCP" if found else "port",
                groups or NONE,
                not found,
                joined(*(rewrites for _, rewrites, _ in found)),
                joined(*(why for _, _, why in found)),
                next(iter(names.values()), ""),
            )
        yield from [Way("port", NONE, default=True)] * PCPS

    def _class(self, family: str, name: str, number: int) -> tuple[list[str], str, str]:
        """(groups that packets of a code point may go to, rewriting, what is unclear)."""
        groups: list[str] = []
        rewrites: list[str] = []
        doubts: list[str] = []
        for term, row in _rows(self.classifiers.get(name, {}), "terms/term", "id").items():
            says = _matches(row, family, number)
            if says is False:
                continue
            actions = row.get("actions", {})
            groups.append(str(_config(actions).get("target-group", NONE)))
            rewrites.append(_said(_config(actions, "remark")))
            if says:
                return groups, joined(*rewrites), joined(*doubts)
            doubts.append(f"term {term} of {name}")
        return [*groups, NONE], joined(*rewrites), joined(*doubts)

    def _treatment(self, row: Node, group: str) -> Treatment:
        name = str(_config(self.groups.get(group, {})).get("output-queue", ""))
        number = _config(self.queues.get(name, {})).get("queue-id")
        output = row.get("output", {})
        own = _config(_rows(output, "queues/queue", "name").get(name, {}))
        curve = self.curves.get(str(own.get("queue-management-profile", "")), {})
        buffer = self.buffers.get(str(_config(output).get("buffer-allocation-profile", "")), {})
        known = {"name", "queue-management-profile"}
        share, shaper = self._served(str(_config(output, "scheduler-policy").get("name", "")), name)
        return Treatment(
            traffic_class=group,
            queue=str(number) if number is not None else f"{name} ({UNKNOWN})" if name else NONE,
            buffer=joined(
                _said(_rows(buffer, "queues/queue", "name").get(name, {})),
                _said({k: v for k, v in own.items() if k not in known}),
            ),
            mark=_said({k: v for k, v in curve.items() if k not in ("name", "config", "state")}),
            share=share,
            rank=-first_number(share) if share.startswith("STRICT") else None,
            weight=first_number(share.partition("weight ")[2]),
            shaper=joined(shaper, _said({k: v for k, v in output.items() if k not in _OUTPUT})),
        )

    def _served(self, policy: str, queue: str) -> tuple[str, str]:
        """(rank and weight, shaper) of a queue by a scheduler policy."""
        share: list[str] = []
        shaper: list[str] = []
        schedulers = "schedulers/scheduler"
        for sequence, row in _rows(self.policies.get(policy, {}), schedulers, "sequence").items():
            for each in _rows(row, "inputs/input", "id").values():
                said = _config(each)
                if str(said.get("queue")) != queue:
                    continue
                priority = str(_config(row).get("priority", ""))
                weight = f"weight {said['weight']}" if "weight" in said else ""
                rank = f"at {sequence}" if priority == "STRICT" else ""
                share.append(" ".join(filter(None, (priority, rank, weight))))
                others = {k: v for k, v in row.items() if k not in _SCHEDULER}
                shaper.append(_said(others))
        return joined(*share), joined(*shaper)


_OUTPUT: Final = frozenset(("queues", "scheduler-policy", "config", "state"))
_SCHEDULER: Final = frozenset(("sequence", "config", "state", "inputs", "output"))


def _matches(term: Node, family: str, number: int) -> bool | None:
    """Whether a term has the packets of a code point; None: only some of them."""
    above = term.get("conditions", {})
    conditions = {k: v for k, v in above.items() if k != "mpls" and _said(v)}
    said = dict(_config(conditions, family))
    points = said.pop("dscp-set", None) or ([said.pop("dscp")] if "dscp" in said else None)
    if points is not None and not any(_covers(str(each), number) for each in points):
        return False
    if family not in conditions and conditions:
        return False
    others = {k: v for k, v in conditions.items() if k != family}
    return True if points is not None and not said and not others else None


def _covers(points: str, number: int) -> bool:
    """Whether `points`, a number or a range A..B, has a code point. Any other text may have it."""
    first, _, last = points.partition("..")
    if not (first.isdecimal() and (last or first).isdecimal()):
        return True
    return int(first) <= number <= int(last or first)


def _config(node: Node, *below: str) -> Node:
    """The config container of a node."""
    for name in below:
        node = node.get(name, {})
    found: Node = node.get("config", {})
    return found


def _rows(node: Node, path: str, key: str) -> dict[str, Node]:
    """The entries of a list, by key."""
    *above, last = path.split("/")
    for name in above:
        node = node.get(name, {})
    return {str(row.get(key, "")): row for row in node.get(last, [])}


def _said(value: Any) -> str:
    """A tree as text, without operational state."""
    if isinstance(value, Mapping):
        found = ((k, _said(v)) for k, v in sorted(value.items()) if k != "state")
        return ", ".join(f"{k} {said}" for k, said in found if said)
    if isinstance(value, list):
        return ", ".join(filter(None, map(_said, value)))
    return "" if value is None else str(value)
