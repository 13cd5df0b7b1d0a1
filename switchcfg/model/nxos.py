"""Model of a Cisco NX-OS switch, from its running configuration. Pure.

Commands are executed in their order, as the switch would: those of the configuration, then those of
a plan. Source: Nexus 9000 QoS guide 10.x; a policy's first class that matches counts, a port's own
policies win over those of `system qos`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from switchcfg.model.lines import Path, paths
from switchcfg.model.values import (
    DSCPS,
    EITHER,
    PCPS,
    POINT_NAMES,
    PauseBuffer,
    PortModel,
    SwitchModel,
    Treatment,
    Way,
    first_number,
    joined,
    port_model,
)
from switchcfg.platforms.name_ranges import members

Lines = dict[str, str]  # what is set, by its first words -> the whole line
Classes = dict[str, Lines]  # of a policy, in its order

NAMES: Final = {"default": 0, **POINT_NAMES}
LAST: Final = "class-default"
OTHER: Final = "other"
_SECTION: Final = re.compile(
    r"(class-map|policy-map)(?: type (qos|queuing|network-qos))?(?: (match-any|match-all))? (\S+)"
)
_CLASS: Final = re.compile(r"class(?: type (?:qos|queuing|network-qos))? (\S+)")
_BIND: Final = re.compile(
    r"service-policy(?: type (qos|queuing|network-qos))?(?: (input|output))? (\S+)(?: no-stats)?"
)
_DSCP: Final = re.compile(r"match (?:ip )?dscp (?:ipv4 )?(.+)")
_COS: Final = re.compile(r"match cos (.+)")
# What a line sets, where it is more than its first word
_SETS: Final = re.compile(
    r"(set \S+|pause|queue-limit|random-detect(?: non-ecn| ecn)?|bandwidth|priority|shape|police|"
    r"afd|mtu|congestion-control)\b.*"
)
_NEAR: Final = re.compile(r"(qos|service-policy|queue-limit|hardware qos)\b.*")
UNITS: Final = {"kbytes": 1000, "mbytes": 1_000_000}
_SIZE: Final = re.compile(r"(\d{1,9}) (kbytes|mbytes)")
_ROOM: Final = re.compile(r"pause buffer-size (\d{1,9}) pause-threshold (\d{1,9})\b.*")
_FED: Final = re.compile(r"c-out-(?:8q-)?q(\d|-default)")
_ENTERS: Final = re.compile(r"c-in-(?:8q-)?q(\d|-default)")
FAR: Final = 100  # metres of cable for which the switch has headroom
_NETWORK: Final = re.compile(r"c-(?:8q-)?nq(\d|-default)")


def model(text: str, payloads: Sequence[str] = ()) -> SwitchModel:
    """The model of a running configuration after these commands."""
    switch = _NxosSwitch()
    for each in (text, *payloads):
        for path in paths(each):
            switch.do(path)
    ports = {name: switch.port(lines) for name, lines in switch.ports.items()}
    return SwitchModel(ports, switch.port({}))


class _NxosSwitch:
    """The settings that commands leave."""

    def __init__(self) -> None:
        self.matches: dict[str, tuple[str, Lines]] = {}  # class -> (match-any ..., its lines)
        self.policies: dict[tuple[str, str], Classes] = {}  # (type, name) -> its classes
        self.system: Lines = {}
        self.ports: dict[str, Lines] = {}

    def do(self, path: Path) -> None:
        """Execute the last line of a path."""
        undo, first = _undone(path[0])
        if hit := _SECTION.fullmatch(first):
            what, kind, how, name = hit.groups()
            if what == "class-map":
                self._match(name, how or "match-all", path[1:], undo=undo)
            else:
                self._policy((kind or "qos", name), path[1:], undo=undo)
        elif first == "system qos" and path[1:]:
            _bind(self.system, path[1])
        elif first.startswith("interface "):
            lines = self.ports.setdefault(first.removeprefix("interface "), {})
            if path[1:]:
                _bind(lines, path[1])

    def _match(self, name: str, how: str, path: Path, *, undo: bool) -> None:
        if undo:
            self.matches.pop(name, None)
            return
        lines = self.matches.setdefault(name, (how, {}))[1]
        for line in path:
            less, told = _undone(line)
            if less:
                lines.pop(told, None)
            else:
                lines[told] = told

    def _policy(self, key: tuple[str, str], path: Path, *, undo: bool) -> None:
        if undo:
            self.policies.pop(key, None)
            return
        classes = self.policies.setdefault(key, {})
        if not path:
            return
        gone, line = _undone(path[0])
        hit = _CLASS.fullmatch(line)
        if hit is None:
            return
        if gone:
            classes.pop(hit[1], None)
            return
        lines = classes.setdefault(hit[1], {})
        for inner in path[1:]:
            less, told = _undone(inner)
            sets = _SETS.fullmatch(told)
            what = sets[1] if sets else told
            if less:
                lines.pop(what, None)
            else:
                lines[what] = told

    def port(self, own: Lines) -> PortModel:
        """The model of a port."""
        bound = {**self.system, **own}
        ways = [*self._ways(bound.get("qos", ""), bound)]
        out = self.policies.get(("queuing", bound.get("queuing", "")), {})
        queues = {number: lines for name, lines in out.items() if (number := _fed(name))}
        entering = self.policies.get(("queuing", bound.get("queuing input", "")), {})
        buffers = {number: lines for name, lines in entering.items() if (number := _enters(name))}
        network = self._network()

        def treat(tc: str) -> Treatment:
            lines, inside = queues.get(tc, {}), network.get(tc, {})
            pause = inside.get("pause", "")
            mode = bound.get("priority-flow-control mode", "auto")
            return Treatment(
                traffic_class=tc,
                queue=tc,
                headroom=joined(_only(inside, "queue-limit"), _only(buffers.get(tc, {}), "")),
                buffer=joined(_only(lines, "queue-limit"), _only(inside, "mtu")),
                pfc=f"{pause}, mode {mode}" if pause and mode != "off" else "",
                mark=_only(lines, "random-detect", "afd", "congestion-control"),
                share=_only(lines, "priority", "bandwidth"),
                shaper=_only(lines, "shape"),
                rank=-first_number(level) if (level := lines.get("priority", "")) else None,
                weight=first_number(lines.get("bandwidth", "")),
                pausing=frozenset([self.system.get("network-qos", "")] if pause else []),
                pauses=frozenset(
                    re.findall(r"\d", pause.rpartition("pfc-cos")[2]) if mode != "off" else []
                ),
                pause_buffer=(
                    _pause_buffer(buffers.get(tc, {}).get("pause", ""), pause, inside)
                    if pause and mode != "off"
                    else None
                ),
            )

        return port_model(ways, treat)

    def _network(self) -> dict[str, Lines]:
        """Queue -> lines of its class of the whole switch."""
        classes = self.policies.get(("network-qos", self.system.get("network-qos", "")), {})
        out: dict[str, Lines] = {}
        for name, lines in classes.items():
            if hit := _NETWORK.fullmatch(name):
                out["0" if hit[1] == "-default" else hit[1]] = lines
            for line in self.matches.get(name, ("", {}))[1]:
                if line.startswith("match qos-group "):
                    out |= {
                        number: lines for number in members(line.removeprefix("match qos-group "))
                    }
        return out

    def _ways(self, policy: str, bound: Mapping[str, str]) -> Iterator[Way]:
        """By the first class of the policy that matches; without a policy, all are of group 0."""
        unknown = joined(*(line for key, line in bound.items() if key.startswith("unread ")))
        classes = self.policies.get(("qos", policy))
        for kind, count in (("DSCP", DSCPS), ("PCP", PCPS)):
            for number in range(count):
                if classes is None:
                    lost = f"policy {policy} is not there" if policy else ""
                    yield Way("port", "0", default=True, unknown=joined(unknown, lost))
                else:
                    yield self._way(classes, kind, number, policy, unknown)

    def _way(self, classes: Classes, kind: str, number: int, policy: str, unknown: str) -> Way:
        doubts, groups = [unknown], list[str]()
        last = classes.get(LAST, {})
        for name, lines in [*((n, c) for n, c in classes.items() if n != LAST), (LAST, last)]:
            says = True if name == LAST else self._matches(name, kind, number)
            if says is False:
                continue
            groups.append(lines.get("set qos-group", "set qos-group 0").rpartition(" ")[2])
            if says:
                group = EITHER.join(dict.fromkeys(groups))
                by = kind if name != LAST else "port"
                more = [v for k, v in lines.items() if k != "set qos-group"]
                return Way(by, group, name == LAST, joined(*more), joined(*doubts), policy)
            doubts.append(f"class {name}")
        raise AssertionError  # class-default matches

    def _matches(self, name: str, kind: str, number: int) -> bool | None:
        """Whether a class has the packets of a code point; None: only some, or unknown."""
        how, lines = self.matches.get(name, ("", {}))
        said = [_holds(line, kind, number) for line in lines]
        if how == "match-any":
            return True if True in said else None if None in said or not said else False
        # A class of the other kind of code point alone has frames of any code point of this kind.
        if False in said or (said and set(said) == {OTHER}):
            return False
        return True if set(said) == {True} else None


def _holds(line: str, kind: str, number: int) -> bool | str | None:
    """Whether a condition holds for the packets of a code point; OTHER: it is on the other kind of
    code point; None: for some, or unknown."""
    for shape, of in ((_DSCP, "DSCP"), (_COS, "PCP")):
        if hit := shape.fullmatch(line):
            return number in _points(hit[1]) if of == kind else OTHER
    return None


def _points(text: str) -> set[int]:
    found: set[int] = set()
    for part in text.replace(",", " ").split():
        found |= {NAMES[part]} if part in NAMES else set(map(int, members(part)))
    return found


def _undone(line: str) -> tuple[bool, str]:
    """(whether the line begins with `no` or `default`, the rest)."""
    head, _, rest = line.partition(" ")
    return (True, rest) if head in ("no", "default") else (False, line)


def _bind(lines: Lines, line: str) -> None:
    """A line of an interface or of `system qos`."""
    undo, told = _undone(line)
    if hit := _BIND.fullmatch(told):
        key, value = hit[1] or "qos", hit[3]
        key = "queuing input" if (key, hit[2]) == ("queuing", "input") else key
    elif hit := re.fullmatch(r"(priority-flow-control mode)(?: (.+))?", told):
        key, value = hit[1], hit[2] or ""
    elif _NEAR.fullmatch(told):
        key, value = f"unread {told}", told
    else:
        return
    if undo:
        lines.pop(key, None)
    else:
        lines[key] = value


def _fed(name: str) -> str:
    """The queue of a class of a queuing policy; "": not of output."""
    hit = _FED.fullmatch(name)
    return "" if hit is None else "0" if hit[1] == "-default" else hit[1]


def _enters(name: str) -> str:
    """The queue of a class of a queuing policy; "": not of input."""
    hit = _ENTERS.fullmatch(name)
    return "" if hit is None else "0" if hit[1] == "-default" else hit[1]


def _pause_buffer(own: str, pause: str, inside: Lines) -> PauseBuffer:
    """The bytes between the threshold and the end of a buffer: of an input queue (`own`), or of a
    network class. Without either, the switch has headroom for FAR."""
    found = _ROOM.fullmatch(own) or _ROOM.fullmatch(pause)
    size = max(0, int(found[1]) - int(found[2])) if found else None
    return PauseBuffer(size, 0 if found else FAR, frame=first_number(inside.get("mtu", "")))


def _only(lines: Lines, *heads: str) -> str:
    """The lines that set what begins so, with sizes in bytes."""
    found = joined(*(line for what, line in sorted(lines.items()) if what.startswith(heads)))
    return _SIZE.sub(lambda hit: f"{int(hit[1]) * UNITS[hit[2]]} bytes", found)
