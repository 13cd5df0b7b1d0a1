"""Model of an Arista EOS switch, from its running configuration. Pure.

Commands are executed in their order, as the switch would: those of the configuration, then those of
a plan. Source: EOS manual 4.30, "Quality of Service", "DCBX and Flow Control" and
"VXLAN DSCP Mapping".
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from switchcfg.model.lines import Command, Path, Section, apply, paths, said
from switchcfg.model.values import (
    DSCPS,
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
from switchcfg.platforms.name_ranges import members

# Default traffic class of CoS 0..7, and of each DSCP by its first three bits
TC_OF_BITS: Final = (1, 0, 2, 3, 4, 5, 6, 7)

# Maps of the whole switch that no line sets
DEFAULTS: Final = {
    **{f"dscp {dscp}": str(TC_OF_BITS[dscp >> 3]) for dscp in range(DSCPS)},
    **{f"cos {cos}": str(TC_OF_BITS[cos]) for cos in range(PCPS)},
    **{f"queue {tc}": str(tc) for tc in range(8)},
}


def _command(shape: str, key: str, value: str = "{0}") -> Command:
    return Command(re.compile(shape), key, value)


# Of the whole switch: kind|numbers -> value
_WHOLE: Final = (
    _command(r"qos map dscp (.+) to traffic-class (\d+)", "dscp|{0}", "{1}"),
    _command(
        r"qos map dscp (.+) to traffic-class (\d+) drop-precedence (\d+)", "dscp|{0}", "{1} {2}"
    ),
    _command(r"qos map cos (.+) to traffic-class (\d+)", "cos|{0}", "{1}"),
    _command(r"qos map traffic-class (.+) to (?:uc-)?tx-queue (\d+)", "queue|{0}", "{1}"),
    _command(r"qos map traffic-class (.+) to (dscp|cos) (\d+)", "out {1}|{0}", "{2}"),
    _command(r"qos rewrite (dscp|cos)", "rewrite {0}|0", ""),
)
_UNDO: Final = (
    _command(r"qos map (dscp|cos) ([\d ,-]+)(?: to .*)?", "{0}|{1}"),
    *_WHOLE,
)
_SECTION: Final = (
    _command(r"qos trust (\S+)", "trust"),
    _command(r"qos (cos|dscp)(?: (\d+))?", "default {0}", "{1}"),
    _command(r"qos rewrite (dscp|cos)", "rewrite {0}", ""),
    _command(r"priority-flow-control(?: (on))?", "pfc mode"),
    _command(r"priority-flow-control priority (\d+) (no-drop|drop)", "pfc {0}", "{1}"),
    _command(r"priority-flow-control pause watchdog(.*)", "watchdog", "on{0}"),
    _command(r"service-profile(?: (\S+))?", "profile"),
    _command(r"service-policy type qos input(?: (\S+))?", "policy"),
    _command(r"shape rate(?: (.+))?", "shape rate"),
    _command(r"flowcontrol (send|receive)(?: (\S+))?", "flowcontrol {0}", "{1}"),
)
_QUEUE: Final = (
    _command(r"priority strict", "strict", "strict"),
    _command(r"bandwidth percent(?: (\d+))?", "bandwidth percent"),
    _command(r"bandwidth guaranteed(?: (.+))?", "bandwidth guaranteed"),
    _command(r"shape rate(?: (.+))?", "shape rate"),
    _command(r"random-detect ecn count", "count", ""),
    _command(r"random-detect ecn(?: (.+))?", "ecn"),
    _command(r"random-detect drop drop-precedence (\d+)(?: (.+))?", "drop {0}", "{1}"),
    _command(r"random-detect drop(?: (minimum.+))?", "drop"),
)
# Lines of these kinds that no command above is like make the port unknown; others are not near QoS.
_NEAR: Final = re.compile(
    r"(?:(?:no|default) )?(qos|priority-flow-control|service-profile|service-policy(?! type pbr)|"
    r"shape|bandwidth|random-detect|(uc-)?tx-queue|flowcontrol|profile)\b.*"
)
_NEAR_WHOLE: Final = re.compile(
    r"qos (?!map exp |map traffic-class \S+ to (mc-tx-queue|exp) |profile ).*"
)
_TX: Final = re.compile(r"(?:uc-)?tx-queue (\d+)")
_TUNNEL: Final = re.compile(r"vxlan (vlan|vni|vrf) ")
# Lines that copy something into the outer header -> what is there without them
_COPIES: Final = {
    "vxlan qos dscp propagation encapsulation": (
        "the outer code point of packets in tunnels follows from their traffic class"
    ),
    "vxlan qos ecn propagation": "the outer ECN of packets in tunnels is 0",
}


def model(text: str, payloads: Sequence[str] = ()) -> SwitchModel:
    """The model of a running configuration after these commands."""
    switch = _EosSwitch()
    for each in (text, *payloads):
        for path in paths(each):
            switch.do(path)
    ports = {name: switch.port(section) for name, section in switch.ports.items()}
    return SwitchModel(ports, switch.port(Section()), {"": [*switch.notes()]})


class _EosSwitch:
    """The settings that commands leave."""

    def __init__(self) -> None:
        self.whole, self.maps = Section(), dict(DEFAULTS)
        self.ports: dict[str, Section] = {}
        self.profiles: dict[str, Section] = {}
        self.tunnels: dict[str, None] = {}  # lines of VXLAN interfaces

    def do(self, path: Path) -> None:
        """Execute the last line of a path."""
        head, name = path[0].rpartition(" ")[::2]
        if head == "interface" and name.startswith("Vxlan") and path[1:]:
            self.tunnels[path[1]] = None
        elif head == "interface":
            self._inside(self.ports.setdefault(name, Section()), path[1:])
        elif head == "qos profile":
            self._inside(self.profiles.setdefault(name, Section()), path[1:])
        elif head in ("no qos profile", "default qos profile"):
            self.profiles.pop(name, None)
        elif len(path) == 1:
            self._map(path[0])

    def _map(self, line: str) -> None:
        """A line of the whole switch; a list of numbers sets each."""
        read, undo = Section(), line.startswith(("no ", "default "))
        told = line.partition(" ")[2] if undo else line
        if not apply(read, told, _UNDO if undo else _WHOLE):
            if _NEAR_WHOLE.fullmatch(line):
                self.whole.unknown[line] = None
            return
        for key, value in read.values.items():
            what, _, listed = key.partition("|")
            for number in members(listed):
                name = f"{what} {number}"
                default = DEFAULTS.get(name)
                if not undo:
                    self.maps[name] = value
                elif default is not None:
                    self.maps[name] = default
                else:
                    self.maps.pop(name, None)

    def _inside(self, section: Section, path: Path) -> None:
        """A line in an interface or a profile."""
        if not path:
            return
        line = path[0]
        if queue := _TX.fullmatch(line):
            self._queue(section.under(queue[1]), path[1:])
        elif line.startswith("no ") and (queue := _TX.fullmatch(line[3:])):
            section.inner.pop(queue[1], None)
        elif line == "no qos trust":
            section.values["trust"] = "none"
        elif line == "default qos trust":
            section.values.pop("trust", None)
        elif line == "switchport mode trunk":
            section.values["tagged"] = ""
        elif not apply(section, line, _SECTION) and _NEAR.fullmatch(line):
            head, _, rest = line.partition(" ")
            if head in ("no", "default"):
                section.unknown.pop(rest, None)
            else:
                section.unknown[line] = None

    def _queue(self, section: Section, path: Path) -> None:
        if not path:
            return
        if path[0] == "no priority":
            section.values["strict"] = "weighted"
        elif not apply(section, path[0], _QUEUE):
            section.unknown[path[0]] = None

    def notes(self) -> Iterator[str]:
        """Warnings of code points and ECN that VXLAN loses in the outer header."""
        if not any(_TUNNEL.match(line) for line in self.tunnels):
            return
        for line, lost in _COPIES.items():
            if line not in self.tunnels:
                yield f"vxlan: {lost}: `{line}` copies it"

    def port(self, own: Section) -> PortModel:
        """The model of a port: its own lines win over those of its profile."""
        name = own.values.get("profile", "")
        profile = self.profiles.get(name, Section())
        values = {**profile.values, **own.values}
        unknown = joined(*self.whole.unknown, *profile.unknown, *own.unknown)
        treat = self._treatment(profile, own, name)
        return port_model([*self._ways(values, unknown)], treat)

    def _ways(self, values: dict[str, str], unknown: str) -> Iterator[Way]:
        """By code point where the port trusts it; else by the port's default CoS or DSCP."""
        if policy := values.get("policy"):
            way = Way("policy", UNKNOWN, unknown=f"service-policy {policy}", classifier=policy)
            yield from [way] * (DSCPS + PCPS)
            return
        # Routed ports trust DSCP by default, switched ones CoS, which needs a tag.
        trust = values.get("trust", "cos" if "tagged" in values else "dscp")
        default = "trust" not in values
        cos, dscp = values.get("default cos", "0"), values.get("default dscp", "0")
        untrusted = Way("port", self._class(f"cos {cos}"), default, unknown=unknown)
        if trust == "dscp":
            untrusted = Way("port", self._class(f"dscp {dscp}"), default, unknown=unknown)
        for number in range(DSCPS):
            way = Way("DSCP", self._class(f"dscp {number}"), default, unknown=unknown)
            out = self._precedence(number)
            yield replace(way, by=joined("DSCP", out)) if trust == "dscp" else untrusted
        for number in range(PCPS):
            way = Way("PCP", self._class(f"cos {number}"), default, unknown=unknown)
            yield way if trust == "cos" else untrusted

    def _class(self, key: str) -> str:
        return self.maps[key].split(" ")[0]

    def _precedence(self, dscp: int) -> str:
        _, _, precedence = self.maps[f"dscp {dscp}"].partition(" ")
        return f"drop precedence {precedence}" if precedence not in ("", "0") else ""

    def _treatment(self, profile: Section, own: Section, name: str) -> Callable[[str], Treatment]:
        values = {**profile.values, **own.values}
        pauses = {each: how for each, how in values.items() if each.startswith("flowcontrol")}
        whole = said({k: v for k, v in pauses.items() if v != "off"}, "flowcontrol")

        def treat(tc: str) -> Treatment:
            queue = UNKNOWN if tc == UNKNOWN else self.maps[f"queue {tc}"]
            lines: dict[str, str] = {}
            unknown: list[str] = []
            for section in (profile, own):
                inner = section.inner.get(queue, Section())
                lines |= inner.values
                unknown += inner.unknown
            paused = values.get(f"pfc {tc}") == "no-drop"
            return Treatment(
                traffic_class=tc,
                queue=queue,
                pfc=self._pfc(values, tc) if paused else "",
                mark=joined(said(lines, "ecn"), said(lines, "drop")),
                share=joined(lines.get("strict", "strict"), said(lines, "bandwidth")),
                shaper=joined(said(lines, "shape"), said(values, "shape"), whole),
                rewrite=self._rewriting(values, tc),
                unknown=joined(*unknown),
                rank=first_number(queue) if lines.get("strict", "strict") == "strict" else None,
                weight=first_number(lines.get("bandwidth percent", "")),
                pausing=frozenset([name] if f"pfc {tc}" in profile.values else []),
                pauses=frozenset([tc] if paused and values.get("pfc mode") else []),
            )

        return treat

    def _pfc(self, values: dict[str, str], tc: str) -> str:
        off = "" if values.get("pfc mode") else ", off"
        watched = f", watchdog {values['watchdog']}" if "watchdog" in values else ""
        return f"no-drop by {tc}{off}{watched}"

    def _rewriting(self, values: dict[str, str], tc: str) -> str:
        found = (
            f"{what} {self.maps.get(f'out {what} {tc}', 'by the class')}"
            for what in ("dscp", "cos")
            if f"rewrite {what}" in values or f"rewrite {what} 0" in self.maps
        )
        return joined(*found)
