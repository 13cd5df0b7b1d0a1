"""Model of a Juniper Junos switch, from its `set` lines. Pure.

`set`, `delete` and `deactivate` are executed in their order on a tree of words. Source: Junos CoS
guide; IPv6 is classified as IPv4 where it has no classifier of its own.
"""

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from switchcfg.model.values import (
    DSCPS,
    EITHER,
    PCPS,
    POINT_NAMES,
    PortModel,
    SwitchModel,
    Treatment,
    Way,
    first_number,
    joined,
    port_model,
)

Tree = dict[str, Any]  # word -> the words that follow it

COS: Final = "class-of-service"
# Words with one value: a second one takes the first one's place
_SINGLE: Final = frozenset(
    ("queue-num", "pfc-priority", "priority", "transmit-rate", "buffer-size", "scheduler",
     "scheduler-map", "cable-length", "flow-control-queue", "drop-profile", "shaping-rate")
)  # fmt: skip
_BINDS: Final = ("classifiers", "rewrite-rules")  # of a unit: kind -> one name
BEST: Final = "best-effort"
QUEUES: Final = {BEST: "0", "fcoe": "3", "no-loss": "4"}  # of classes that no line defines
# Built-in names of code points
NAMES: Final = {"be": 0, "nc1": 48, "nc2": 56, **POINT_NAMES}
# Strict priorities of schedulers; those of the lowest share by transmit rate
LEVELS: Final = {"strict-high": 4, "high": 3, "medium-high": 2, "medium-low": 1}
# Other lines of a port that shape or share its rate
_CONTROLS: Final = (
    "output-traffic-control-profile", "forwarding-class-set", "scheduler-map-chassis",
    "input-scheduler-map", "input-traffic-control-profile",
)  # fmt: skip
_LIST: Final = re.compile(r"(.*) \[ (.*) \]")
_QUEUE: Final = re.compile(r"(.* forwarding-classes) queue (\d+) (\S+)(.*)")
_SHORT, _LONG = 2500, 9216  # bytes: MRU by default, and that of PFC priority 4
_INGRESS: Final = ("lossless", "lossless-headroom")


def model(text: str, payloads: Sequence[str] = ()) -> SwitchModel:
    """The model of a configuration after these lines."""
    tree: Tree = {}
    for each in (text, *payloads):
        for line in each.splitlines():
            _do(tree, line.strip().replace('"', ""))
    switch = _JunosSwitch(tree)
    ports = {name: switch.port(name) for name in switch.names()}
    return SwitchModel(ports, switch.port(""), {name: [*switch.notes(name)] for name in ports})


def _do(tree: Tree, line: str) -> None:
    verb, _, rest = line.partition(" ")
    if verb in ("delete", "deactivate"):
        *above, last = rest.split()
        node = tree
        for word in above:
            node = node.get(word, {})
        node.pop(last, None)
    elif verb == "set":
        listed = _LIST.fullmatch(rest)
        for each in listed[2].split() if listed else [""]:
            _set(tree, f"{listed[1]} {each}" if listed else rest)


def _set(tree: Tree, text: str) -> None:
    if older := _QUEUE.fullmatch(text):
        text = f"{older[1]} class {older[3]} queue-num {older[2]}{older[4]}"
    words = text.split()
    for before, word in zip(("", *words), words, strict=False):
        bound = words[:2] == [COS, "interfaces"] and set(_BINDS) & set(words[:-2])
        last = word is words[-1] and bound
        if (before in _SINGLE or last) and word not in tree:
            tree.clear()
        tree = tree.setdefault(word, {})


class _JunosSwitch:
    """The class of service of a configuration."""

    def __init__(self, tree: Tree) -> None:
        self.tree, self.cos = tree, tree.get(COS, {})
        self.points = dict(NAMES)
        for kind in ("dscp", "dscp-ipv6"):
            for name, bits in _at(self.cos, "code-point-aliases", kind).items():
                self.points[name] = int(_first(bits), 2)

    def names(self) -> Iterator[str]:
        """The names of all ports."""
        found = (*_at(self.cos, "interfaces"), *_at(self.tree, "interfaces"))
        yield from (each for each in dict.fromkeys(found) if "*" not in each)

    def port(self, name: str) -> PortModel:
        """The model of a port. Lines for a pattern of names hold where it has none of its own."""
        bound: Tree = {}
        for pattern, lines in _at(self.cos, "interfaces").items():
            if "*" in pattern and fnmatchcase(name, pattern.strip("<>")):
                bound |= lines
        bound |= _at(self.cos, "interfaces", name)
        unit = {**bound, **_at(bound, "unit", "*"), **_at(bound, "unit", "0")}
        return port_model([*self._ways(bound, unit)], lambda tc: self._treatment(bound, unit, tc))

    def notes(self, name: str) -> Iterator[str]:
        """Code points whose headroom is computed for shorter frames than the port has. Source:
        Juniper's page "mru (Congestion Notification Profiles)", with the defaults."""
        mtu = first_number(_first(_at(self.tree, "interfaces", name, "mtu")))
        treatments = self.port(name)
        short: dict[int, list[str]] = {}
        for kind, points in (
            self._profile(_at(self.cos, "interfaces", name)).get("input", {}).items()
        ):
            for bits, said in _at(points, "code-point").items():
                at = self._point(bits) + (0 if kind == "dscp" else DSCPS)
                pauses = treatments[at].pauses if 0 <= at < len(treatments) else frozenset()
                told = first_number(_first(_at(said, "pfc", "mru") or _at(said, "mru")))
                mru = told or (_LONG if pauses == {"4"} else _SHORT)
                if mru < mtu:
                    short.setdefault(mru, []).append(bits)
        for mru, found in short.items():
            yield (
                f"headroom: {name}: Junos computes it for frames of {mru} bytes at code points "
                f"{', '.join(sorted(found))}, and the port's MTU is {mtu}: longer ones may drop"
            )

    def _ways(self, bound: Tree, unit: Tree) -> Iterator[Way]:
        fixed, classifiers = _first(unit.get("forwarding-class", {})), unit.get("classifiers", {})
        known = {"dscp", "dscp-ipv6", "ieee-802.1"}
        unknown = joined(
            self._groups(), *(f"classifiers {k}" for k in classifiers if k not in known)
        )
        four, tags = _first(classifiers.get("dscp", {})), _first(classifiers.get("ieee-802.1", {}))
        six = _first(classifiers.get("dscp-ipv6", {}))
        families = (("dscp", four), ("dscp-ipv6", six) if six else ("dscp", four))
        pauses = _at(self._profile(bound), "input")
        for number in range(DSCPS):
            ways = [self._class(kind, name, number) for kind, name in families]
            yield Way(
                joined("DSCP", *(loss for _, loss, _ in ways)) if four and not fixed else "port",
                fixed or EITHER.join(dict.fromkeys(to for to, _, _ in ways)),
                not (fixed or four or tags),
                unknown=joined(unknown, *(why for _, _, why in ways)),
                classifier=four,
                pfc=self._paused(pauses, "dscp", number),
            )
        for number in range(PCPS):
            to, loss, why = self._class("ieee-802.1", tags, number)
            yield Way(
                joined("PCP", loss) if tags and not fixed else "port",
                fixed or to,
                not (fixed or four or tags),
                unknown=joined(unknown, why),
                classifier=tags,
                pfc=self._paused(pauses, "ieee-802.1", number),
            )

    def _groups(self) -> str:
        """Groups with class of service that are applied: their lines are not here."""
        applied = [*_at(self.tree, "apply-groups"), *_at(self.cos, "apply-groups")]
        groups = _at(self.tree, "groups")
        return joined(*(f"group {each}" for each in applied if COS in groups.get(each, {})))

    def _class(self, kind: str, name: str, number: int) -> tuple[str, str, str]:
        """(class, loss priority, what is not understood) of a code point by a classifier."""
        rows = _at(self.cos, "classifiers", kind, name) if name else {}
        for to, losses in rows.get("forwarding-class", {}).items():
            for loss, points in losses.get("loss-priority", {}).items():
                if number in map(self._point, points.get("code-points", {})):
                    return to, f"loss priority {loss}", ""
        if name == "default" or (name and not rows):
            return BEST, "", f"classifier {name}"
        return BEST, "", f"import in classifier {name}" if "import" in rows else ""

    def _point(self, text: str) -> int:
        return int(text, 2) if re.fullmatch("[01]{3,6}", text) else self.points.get(text, -1)

    def _profile(self, bound: Tree) -> Tree:
        names = bound.get("congestion-notification-profile", {})
        profiles = _at(self.cos, "congestion-notification-profile")
        return {key: value for name in names for key, value in profiles.get(name, {}).items()}

    def _paused(self, pauses: Tree, kind: str, number: int) -> str:
        found = _at(pauses, kind, "code-point")
        return joined(*(f"input {kind}" for each in found if self._point(each) == number))

    def _treatment(self, bound: Tree, unit: Tree, name: str) -> Treatment:
        """Of a forwarding class."""
        words = [
            word
            for path in _paths(_at(self.cos, "forwarding-classes", "class", name))
            for word in path
        ]
        has = dict(zip(words, [*words[1:], ""], strict=False))
        queue = has.get("queue-num", QUEUES.get(name, f"of {name}"))
        lossless = "no-loss" in words
        row = _at(self.cos, "scheduler-maps", _first(bound.get("scheduler-map", {})))
        scheduler = _at(row, "forwarding-class", name, "scheduler")
        lines = _at(self.cos, "schedulers", _first(scheduler))
        profile = self._profile(bound)
        output = _at(profile, "output", "ieee-802.1", "code-point")
        paused = [
            f"output {bits}"
            for bits, to in output.items()
            if queue in to.get("flow-control-queue", {})
        ]
        priority = f"no-loss, priority {has.get('pfc-priority', queue)}" if lossless else ""
        group = "lossless" if lossless else "lossy"
        ingress, egress = (
            _at(self.cos, "shared-buffer", way, "buffer-partition") for way in ("ingress", "egress")
        )
        room = [_said(profile.get("input", {}), "cable-length")]
        room += [_said(ingress, each) for each in _INGRESS]
        own = {k: v for k, v in {**bound, **unit}.items() if k in ("shaping-rate", *_CONTROLS)}
        names = [*bound.get("congestion-notification-profile", {}), *([name] if lossless else [])]
        return Treatment(
            traffic_class=name,
            queue=queue,
            group=group,
            headroom=joined(*room) if lossless else "",
            buffer=joined(_said(lines, "buffer-size"), _said(egress, group)),
            pfc=joined(priority, *paused),
            mark=joined(_said(lines, "explicit-congestion-notification"), self._drops(lines)),
            share=joined(
                _said(lines, "priority"), _said(lines, "transmit-rate"), _said(lines, "excess-rate")
            ),
            shaper=joined(_said(lines, "shaping-rate"), *(_said(own, each) for each in own)),
            rewrite=self._rewriting(unit, name),
            rank=LEVELS.get(_first(lines.get("priority", {}))),
            weight=first_number(_said(lines, "transmit-rate")),
            pausing=frozenset(names if lossless or paused else []),
            pauses=frozenset([has.get("pfc-priority", queue)] if lossless and profile else []),
        )

    def _drops(self, lines: Tree) -> str:
        """Drop profiles with what they say, for a profile of another name may say the same."""
        profiles = _at(self.cos, "drop-profiles")
        found = []
        for *where, name in sorted(_paths(lines.get("drop-profile-map", {}))):
            said = ", ".join(" ".join(path) for path in sorted(_paths(profiles.get(name, {}))))
            found.append(f"{' '.join(where)} {said or name}")
        return joined(*found)

    def _rewriting(self, unit: Tree, name: str) -> str:
        """Rewrite rules of a port for a class; unknown rules by their name."""
        found = []
        for kind, names in unit.get("rewrite-rules", {}).items():
            for rule in names:
                row = _at(self.cos, "rewrite-rules", kind, rule)
                out = _said(_at(row, "forwarding-class"), name)
                found.append(f"{kind} {out or rule}" if out or not row or "import" in row else "")
        return joined(*found)


def _at(tree: Tree, *words: str) -> Tree:
    """The words that follow these; {}: none."""
    for word in words:
        tree = tree.get(word, {})
    return tree


def _first(tree: Tree) -> str:
    return next(iter(tree), "")


def _paths(tree: Tree) -> Iterator[tuple[str, ...]]:
    """All sequences of words below, each to its end."""
    for word, below in tree.items():
        if below:
            yield from ((word, *rest) for rest in _paths(below))
        else:
            yield (word,)


def _said(tree: Tree, word: str) -> str:
    """The lines that begin with a word, as text."""
    if word not in tree:
        return ""
    return ", ".join(sorted(" ".join((word, *path)) for path in _paths(tree[word]))) or word
