"""Model of a Cumulus Linux switch, from its `nv set` lines. Pure.

`nv set` and `nv unset` are executed in their order. Source: Cumulus Linux 5.x documentation,
"Quality of Service": a port's own profile wins over `default-global`; without a `trust`, VLAN
priority counts.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from switchcfg.model.values import (
    DSCPS,
    PCPS,
    PortModel,
    SwitchModel,
    Treatment,
    Way,
    first_number,
    joined,
    port_model,
)
from switchcfg.platforms.name_ranges import members

GLOBAL: Final = "default-global"
Stem = tuple[str, ...]
# Words after which a line has a list
_LISTED: Final = ("interface", "dscp", "pcp", "switch-priority", "traffic-class")
# Leaves that have several values
_SEVERAL: Final = re.compile(r"qos pfc \S+ switch-priority")
# What the lines of the whole switch are about, as far as this model understands them
_UNDERSTOOD: Final = (
    "mapping", "egress-queue-mapping", "egress-scheduler", "congestion-control", "pfc", "remark",
    "traffic-pool", "advance-buffer-config", "link-pause", "pfc-watchdog", "roce",
)  # fmt: skip
_WAYS: Final = ("rx", "tx")
_OFF: Final = {"off", "disabled", "disable"}
_ON: Final = {"on", "enabled", "enable"}


def model(text: str, payloads: Sequence[str] = ()) -> SwitchModel:
    """The model of a configuration after these lines."""
    switch = _NvueSwitch()
    for each in (text, *payloads):
        for line in each.splitlines():
            switch.do(line.split())
    ports = {name: switch.port(name) for name in switch.ports()}
    return SwitchModel(ports, switch.port(""), {"": [*switch.notes()]})


class _NvueSwitch:
    """The leaves that lines leave: stem -> its values."""

    def __init__(self) -> None:
        self.leaves: dict[Stem, dict[str, None]] = {}

    def do(self, words: Sequence[str]) -> None:
        """Execute a line."""
        if words[:2] == ["nv", "set"]:
            for *stem, value in _expanded(words[2:]):
                leaf = self.leaves.setdefault(tuple(stem), {})
                if not _SEVERAL.fullmatch(" ".join(stem)):
                    leaf.clear()
                leaf[value] = None
        elif words[:2] == ["nv", "unset"]:
            for gone in map(tuple, _expanded(words[2:])):
                self.leaves.get(gone[:-1], {}).pop(gone[-1], None)
                for below in [each for each in self.leaves if each[: len(gone)] == gone]:
                    del self.leaves[below]

    def ports(self) -> Iterator[str]:
        """The names of all ports."""
        named = (stem[1] for stem in self.leaves if stem[0] == "interface" and len(stem) > 1)
        yield from dict.fromkeys(named)

    def leaf(self, *stem: str, default: str = "") -> str:
        """The value of a leaf."""
        return next(iter(self.leaves.get(stem, ())), default)

    def below(self, *stem: str) -> Iterator[tuple[Stem, str]]:
        """(rest of the stem, value) of the leaves below."""
        for each, values in self.leaves.items():
            if each[: len(stem)] == stem:
                yield from ((each[len(stem) :], value) for value in values)

    def profile(self, port: str, *kind: str) -> str:
        """The profile of a port."""
        return self.leaf("interface", port, "qos", *kind, "profile", default=GLOBAL)

    def notes(self) -> Iterator[str]:
        """The code points of packets in VXLAN tunnels, if no line says that they stay."""
        vxlan = ("nve", "vxlan")
        if {self.leaf(*vxlan, "enable"), self.leaf(*vxlan, "state")}.isdisjoint(_ON):
            return
        wanted = {"encapsulation": "copy", "decapsulation": "preserve"}
        for way, action in wanted.items():
            if not self.leaf(*vxlan, way, "dscp", "action"):
                yield (
                    f"vxlan: {way} sets the code point of packets by their switch priority: "
                    f"`nv set nve vxlan {way} dscp action {action}` keeps it"
                )

    def port(self, name: str) -> PortModel:
        """The model of a port."""
        return port_model([*self._ways(name)], lambda tc: self._treatment(name, tc))

    def _ways(self, port: str) -> Iterator[Way]:
        profile = self.profile(port, "mapping")
        mapping = ("qos", "mapping", profile)
        told = self.leaf(*mapping, "trust")
        trust, unknown = told or "l2", self._unknown(port)
        untrusted = self.leaf(*mapping, "port-default-sp", default="0")
        for kind, count, by in (("dscp", DSCPS, ("l3", "both")), ("pcp", PCPS, ("l2", "both"))):
            for number in range(count):
                default = str(number >> 3 if kind == "dscp" else number)
                said = self.leaf(*mapping, kind, str(number), "switch-priority")
                priority = said or default if trust in by else untrusted
                yield Way(
                    kind.upper() if trust in by else "port",
                    priority,
                    not said and (trust in by or not told),
                    self._remarked(port, kind, priority),
                    unknown,
                    profile,
                )

    def _unknown(self, port: str) -> str:
        """Lines that send packets elsewhere than these maps, or are not understood."""
        found = [
            f"qos {' '.join(stem)} {value}"
            for stem, value in self.below("qos")
            if (stem or (value,))[0] not in _UNDERSTOOD
            or ((stem or (value,))[0] == "roce" and value not in _OFF)
        ]
        for stem, value in self.below("interface", port, "acl"):
            rules = self.below("acl", stem[0] if stem else value)
            if any({"set", "police"} & {*rule, said} for rule, said in rules):
                found.append(f"acl {stem[0] if stem else value}")
        return joined(*found[:3])

    def _remarked(self, port: str, kind: str, priority: str) -> str:
        remark = ("qos", "remark", self.profile(port, "remark"))
        rewrites = self.leaf(*remark, "rewrite")
        if rewrites not in ({"dscp": "l3", "pcp": "l2"}[kind], "both"):
            return ""
        return f"{kind} {self.leaf(*remark, 'switch-priority', priority, kind, default='by map')}"

    def _treatment(self, port: str, priority: str) -> Treatment:
        """Of a switch priority, which is what `mapping` gives."""
        queues = ("qos", "egress-queue-mapping", self.profile(port, "egress-queue-mapping"))
        tc = self.leaf(*queues, "switch-priority", priority, "traffic-class", default=priority)
        served = ("qos", "egress-scheduler", self.profile(port, "egress-scheduler"))
        mode = self.leaf(*served, "traffic-class", tc, "mode")
        pausing = self.profile(port, "pfc")
        paused = priority in self.leaves.get(("qos", "pfc", pausing, "switch-priority"), {})
        curve = ("qos", "congestion-control", self.profile(port, "congestion-control"))
        group = "default-lossless" if paused else "default-lossy"
        buffers = ("qos", "advance-buffer-config", self.profile(port, "advance-buffer-config"))
        room = joined(_said(self.below("qos", "traffic-pool", group)), self._cable(pausing))
        alphas = [*self.below(*buffers, "egress-lossy-buffer", "traffic-class", tc)]
        whole = self.below("qos", "link-pause", self.profile(port, "link-pause"))
        return Treatment(
            traffic_class=priority,
            queue=tc,
            group=group,
            headroom=room if paused else "",
            buffer="" if paused else _said(alphas),
            pfc=joined(self._pfc(pausing), self._watched(port)) if paused else "",
            mark=_said(self.below(*curve, "traffic-class", tc)),
            share=_said(self.below(*served, "traffic-class", tc)),
            shaper=_said(whole) if self.profile(port, "link-pause") != GLOBAL else "",
            rank=first_number(tc) if mode == "strict" else None,
            weight=first_number(self.leaf(*served, "traffic-class", tc, "bw-percent")),
            pausing=frozenset([pausing] if paused else []),
            pauses=frozenset([priority] if paused else []),
        )

    def _pfc(self, profile: str) -> str:
        ways = (f"{way} {self.leaf('qos', 'pfc', profile, way, default='on')}" for way in _WAYS)
        return ", ".join(ways)

    def _cable(self, profile: str) -> str:
        found = self.below("qos", "pfc", profile)
        return _said(each for each in found if each[0][0] not in (*_WAYS, "switch-priority"))

    def _watched(self, port: str) -> str:
        on = ("pfc-watchdog",) in dict(self.below("interface", port, "qos"))
        return "watchdog" if on or self.leaf("interface", port, "qos") == "pfc-watchdog" else ""


def _expanded(words: Sequence[str]) -> list[list[str]]:
    """A line for each member of its lists."""
    out: list[list[str]] = [[]]
    for before, word in zip(("", *words), words, strict=False):
        found = members(word) if before in _LISTED else [word]
        out = [[*line, each] for line in out for each in found]
    return out


def _said(leaves: Iterator[tuple[Stem, str]] | Sequence[tuple[Stem, str]]) -> str:
    return ", ".join(f"{' '.join(stem)} {value}".strip() for stem, value in sorted(leaves))
