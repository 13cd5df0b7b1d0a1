"""A device's present state, indexed: what its ports have, and where their code points go. Pure."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from switchcfg.intent.intent import Intent
from switchcfg.plan.state import Place, State
from switchcfg.platforms.junos.known import VLAN_TYPES
from switchcfg.platforms.junos.text import OTHER
from switchcfg.platforms.platform import is_ours
from switchcfg.platforms.rule import SEPARATOR

# Kinds of lines: of a classifier -> of its binding to a port.
CLASSIFIERS: Final = {
    "classifier": "interface classifier",
    "classifier ipv6": "interface classifier ipv6",
}
_IMPORTS: Final = {
    "classifier": "classifier import dscp",
    "classifier ipv6": "classifier import dscp-ipv6",
}
_INSIDE: Final = ("pfc mru", "pfc xon")
DEFAULT: Final = "default"  # the name of the built-in classifier of each type
# Built-in classes and their queues; the queues of other built-in classes differ by chip.
DEFAULTS: Final = {"best-effort": 0, "fcoe": 3, "no-loss": 4}
DIFFERS: Final = {"expedited-forwarding": {1}, "assured-forwarding": {2}, "network-control": {3, 7}}
# The built-in classifiers of code points; the others go to best-effort (Juniper's page "Default
# DSCP and DSCP IPv6 Classifiers").
BUILT_IN: Final = {
    10: ("assured-forwarding", "low"),
    12: ("assured-forwarding", "high"),
    14: ("assured-forwarding", "high"),
    46: ("expedited-forwarding", "low"),
    48: ("network-control", "low"),
    56: ("network-control", "low"),
}
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
            parts = place.name.split(SEPARATOR, 1 if place.kind == OTHER else -1)
            rows.setdefault(place.kind, {})[tuple(parts)] = value
        for kind in _INSIDE:  # `pfc mru 9216` is printed without a line `pfc`
            for name, by, bits in rows.get(kind, {}):
                pauses = "pfc input" if by == "dscp" else "pfc tagged"
                rows.setdefault(pauses, {})[name, bits] = ""
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
        for name, _, queue in self.rows.get("pfc output", {}):
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
        return {
            kind: self._mapped(kind, name)
            for kind, binds in CLASSIFIERS.items()
            if (name := self.bound(binds, port))
        }

    def _mapped(self, kind: str, name: str, via: tuple[str, ...] = ()) -> dict[int, Home]:
        """Code point -> its class and loss priority, by a classifier and those that it imports."""
        if name == DEFAULT:
            return {dscp: BUILT_IN.get(dscp, ("best-effort", "low")) for dscp in range(64)}
        base = self.bound(_IMPORTS[kind], name)
        found = self._mapped(kind, base, (*via, name)) if base and base not in via else {}
        return found | {
            int(bits, 2): (to, loss)
            for each, to, loss, bits in self.rows.get(kind, {})
            if each == name and re.fullmatch("[01]{6}", bits)
        }

    def by_priority(self, port: str) -> dict[str, str]:
        """VLAN priority (three bits) -> its class, or "" where the chip decides, for a port that
        classifies by VLAN priority alone. Empty: it does not."""
        if any(self.bound(binds, port) for binds in CLASSIFIERS.values()):
            return {}
        for each in VLAN_TYPES:
            kind = f"interface classifier {each}"
            units = (self.bound(kind, f"{port}{SEPARATOR}{unit}") for unit in ("0", "*"))
            if name := next(filter(None, (self.bound(f"{kind} whole", port), *units)), ""):
                rows = self.rows.get(f"classifier {each}", {})
                base = {f"{bits:03b}": "" for bits in range(8)}
                if name != DEFAULT and not self.bound(f"classifier import {each}", name):
                    base = {}
                return base | {bits: to for owner, to, _, bits in rows if owner == name}
        paused = self.rows.get("pfc tagged", {})
        profile = self.bound("interface pfc", port)
        return {bits: "" for name, bits in paused if name == profile}

    def schedulers(self, port: str) -> dict[str, str]:
        """Forwarding class -> its scheduler on a port."""
        map_ = self.bound("interface map", port)
        rows = self.rows.get("scheduler map", {})
        return {to: scheduler for (name, to), scheduler in rows.items() if name == map_}


def covers(where: str, port: str) -> bool:
    """Whether the name of a pattern, such as `et-*` or `<et-*>`, stands for a port."""
    pattern = where.strip("<>")
    return where == "all" or ("*" in pattern and fnmatchcase(port, pattern))
