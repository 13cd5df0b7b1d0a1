"""Model of a Linux switch, from switchcfg's snapshot of it, or from a script of `render`. Pure.

Commands of tc and nft are executed in their order. Source: tc-htb(8), nft(8); a chain's last rule
that sets a packet's priority counts, and the root's default where none does.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from switchcfg.model.values import (
    DSCPS,
    EITHER,
    NONE,
    PCPS,
    PortModel,
    SwitchModel,
    Treatment,
    Way,
    first_number,
    joined,
    port_model,
)

UNITS: Final = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_RATE: Final = re.compile(r"(\d+)([KMGT]?)bit")
_HEX: Final = re.compile(r"\b0x([0-9a-f]+)\b")
_TC: Final = re.compile(r"(qdisc|class) (replace|add|change|del) dev (\S+) (.*)")
_CLASS: Final = re.compile(r"class (\S+) (\S+) (?:root|parent \S+) ?(.*)")
_TABLE: Final = re.compile(r"(delete )?table netdev (\S+)(?: \{( \})?)?")
_CHAIN: Final = re.compile(r"chain (\S+) \{")
_SETS: Final = re.compile(r"(?:(ip6?) dscp (\{ [\d, ]+ \}|\d+) )?meta priority set (\S+)")
_PRIORITY: Final = re.compile(r"meta priority (\{ [^}]* \}|\S+) (?!set )(.*)")
_IDENTITY: Final = re.compile(r"\b(classid|parent) (\S+)")


def model(text: str, payloads: Sequence[str] = ()) -> SwitchModel:
    """The model of a snapshot after these commands."""
    switch = _LinuxSwitch()
    if text.startswith("#!"):
        switch.run(text)
    else:
        switch.snapshot(text)
    for each in payloads:
        switch.run(each)
    return SwitchModel({n: switch.port(p) for n, p in switch.ports.items()}, switch.port(_Queues()))


@dataclass(slots=True)
class _Queues:
    """The queues of a port, and the rules of its chains."""

    root: str = ""  # kind of the root queue, and its options
    default: str = ""  # class of packets without a priority
    classes: dict[str, str] = field(default_factory=dict)  # class -> its rates and rank
    limits: dict[str, str] = field(default_factory=dict)  # class -> its queue
    rules: dict[str, list[str]] = field(default_factory=dict)  # table -> rules


class _LinuxSwitch:
    """The queues and rules that commands leave."""

    def __init__(self) -> None:
        self.ports: dict[str, _Queues] = {}

    def snapshot(self, text: str) -> None:
        """Read a snapshot."""
        for part in re.split(r"^@@ ", text, flags=re.MULTILINE)[1:]:
            title, _, body = part.partition("\n")
            name, _, port = title.partition(" ")
            if name == "qdiscs":
                for row in json.loads(body):
                    self._qdisc(row)
            elif name == "port":
                queues = self._port(port)
                for line in body.splitlines():
                    if hit := _CLASS.match(line):
                        queues.classes[hit[2]] = _rates(f"{hit[1]} {hit[3]}")
            elif name == "rules":
                self._rules(body.splitlines())

    def _qdisc(self, row: dict[str, Any]) -> None:
        options, kind = row.get("options") or {}, str(row.get("kind", ""))
        queues = self._port(str(row.get("dev", "")))
        if row.get("root"):
            handle = str(row.get("handle", ""))
            default = str(options.get("default", "")).removeprefix("0x")
            queues.root = kind
            queues.default = f"{handle}{default}" if default else ""
        elif limit := options.get("limit"):
            queues.limits[str(row.get("parent", ""))] = f"{kind} limit {limit}"

    def run(self, text: str) -> None:
        """Execute the lines of a script."""
        lines = [line.strip() for line in text.splitlines()]
        for line in lines:
            if hit := _TC.fullmatch(line):
                self._tc(hit[1], hit[2], self._port(hit[3]), hit[4])
        self._rules(lines)

    def _tc(self, what: str, verb: str, queues: _Queues, rest: str) -> None:
        if what == "class":
            name = dict(_IDENTITY.findall(rest)).get("classid", "")
            if verb == "del":
                queues.classes.pop(name, None)
                queues.limits.pop(name, None)
            else:
                queues.classes[name] = _rates(rest.partition(f"classid {name} ")[2])
        elif rest.startswith("root"):
            if verb == "del":
                queues.root, queues.default = "", ""
                queues.classes, queues.limits = {}, {}
            elif made := re.fullmatch(r"root handle (\S+) (\S+) default (\S+)", rest):
                queues.root, queues.default = made[2], f"{made[1]}{made[3]}"
        elif made := re.fullmatch(r"parent (\S+) (.+)", rest):
            queues.limits[made[1]] = made[2]

    def _rules(self, lines: Sequence[str]) -> None:
        table = port = ""
        for line in map(str.strip, lines):
            if hit := _TABLE.fullmatch(line):
                table = hit[2]
                for queues in self.ports.values() if hit[1] else ():
                    queues.rules.pop(table, None)
            elif hit := _CHAIN.fullmatch(line):
                port = hit[1]
            elif line == "}":
                port = ""
            elif table and port and not line.startswith("type filter "):
                rule = _HEX.sub(lambda hexed: str(int(hexed[1], 16)), line)
                self._port(port).rules.setdefault(table, []).append(rule)

    def _port(self, name: str) -> _Queues:
        return self.ports.setdefault(name, _Queues())

    def port(self, queues: _Queues) -> PortModel:
        """The model of a port."""
        rules = [rule for table in queues.rules.values() for rule in table]
        ways = [*_ways(queues, rules)]
        return port_model(ways, lambda tc: _treatment(queues, rules, tc))


def _ways(queues: _Queues, rules: Sequence[str]) -> Iterator[Way]:
    sets = [hit for rule in rules if (hit := _SETS.fullmatch(rule))]
    table = next(iter(queues.rules), "")
    for number in range(DSCPS):
        found: dict[str, None] = {}
        for family in ("ip", "ip6"):
            to = queues.default or queues.root or NONE
            for hit in sets:
                if not hit[1] or (hit[1] == family and str(number) in re.findall(r"\d+", hit[2])):
                    to = hit[3]
            found[to] = None
        yield Way("DSCP" if sets else "port", EITHER.join(found), not sets, classifier=table)
    yield from [Way("port", queues.default or queues.root or NONE, default=True)] * PCPS


def _treatment(queues: _Queues, rules: Sequence[str], name: str) -> Treatment:
    hits = (hit for rule in rules if (hit := _PRIORITY.fullmatch(rule)))
    mine = [hit[2] for hit in hits if name in re.findall(r"[\da-f]+:[\da-f]+", hit[1])]
    return Treatment(
        traffic_class=name,
        queue=name,
        buffer=queues.limits.get(name, ""),
        mark=joined(*mine),
        share=queues.classes.get(name, ""),
        rank=-first_number(queues.classes[name]) if name in queues.classes else None,
        shaper=queues.root,
    )


def _rates(text: str) -> str:
    """Rate, ceiling and rank of a class, in bit/s."""
    said = dict(re.findall(r"\b(rate|ceil|prio) (\S+)", text))
    for key in ("rate", "ceil"):
        if hit := _RATE.fullmatch(said.get(key, "")):
            said[key] = str(int(hit[1]) * UNITS[hit[2]])
    return f"prio {said.get('prio', '0')}, rate {said.get('rate')}, ceil {said.get('ceil')}"
