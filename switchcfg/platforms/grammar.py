"""Converts between command lines and values, by one table of templates. Pure.

One line of a configuration is one value of a `State`. The same template (`switchcfg.platforms.
rule`) writes and reads; a property test checks that reading inverts writing.

A grammar with `owners` accounts for every line near QoS (`switchcfg.plan.account`).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from switchcfg.errors import BadState
from switchcfg.plan.account import (
    MOST,
    NOT_UNDERSTOOD,
    SWITCH,
    UNREAD,
    Item,
    KnownLine,
    Reading,
    account,
    reached,
    reason,
)
from switchcfg.plan.state import Change, Place, State, natural
from switchcfg.platforms.name_ranges import members
from switchcfg.platforms.rule import Rule, inner

MAX_TEXT: Final = 1 << 24  # characters of a device's configuration
CHANNEL: Final = "interface channel"  # kind of the line of a port-channel's member
MEMBERS: Final = "*"  # the first group is a list or range of owners
JOINT: Final = " / "  # between sections and lines in an account


@dataclass(frozen=True, slots=True)
class Grammar:
    """The rules of one command language."""

    rules: tuple[Rule, ...]  # in the order in which a device takes them
    indent: int = 0  # columns per section; 0 = there are no sections
    comment: str = "!"
    spell: Callable[[str], str] = str.strip  # normalises a line for the rules; "": ignore it
    # Sections with these beginnings exist even when empty.
    permanent: tuple[str, ...] = ("interface ", "system qos")
    # An outermost line -> the owner of it and of its section, with the groups for {0} and {1}, or
    # MEMBERS for a list of owners. The first match counts; a line without owner is not near QoS.
    owners: tuple[tuple[re.Pattern[str], str], ...] = ()
    # Owners of which each line is known: one that has only lines that are not understood is a
    # word of a line in another order, so its lines are near whatever a plan touches.
    certain: re.Pattern[str] = re.compile("(?!)")
    # Interfaces that carry packets of any port, such as those of VLANs: their refused lines, and
    # all objects that are bound there, are near whatever a plan touches.
    around: re.Pattern[str] = re.compile("(?!)")
    idle: tuple[KnownLine, ...] = ()  # lines of no matter
    refused: tuple[KnownLine, ...] = ()  # lines that are refused, and why

    def write(self, state: State) -> str:
        """All lines, each section once, in the order of rules and names.

        Raises: BadState for a value that no rule matches.
        """
        paths = [self._lines(place, value) for place, value in self._in_order(state.items())]
        return "".join(f"{line}\n" for line in self.nest(paths))

    def read(self, text: str) -> Reading:
        """The values of all lines that match a rule. Of the other lines, those with an owner are
        accounted for.

        Raises: BadState.
        """
        if len(text) > MAX_TEXT:
            raise BadState(f"configuration of {len(text)} characters, at most {MAX_TEXT}")
        return account(self._items(text), self._consume, idle=self.idle, refused=self.refused)

    def _items(self, text: str) -> Iterator[tuple[Item, tuple[str, ...]]]:
        """Each line near QoS; every line, for a grammar without owners."""
        for path in self._paths(text):
            owners = self._owners(path[0]) if self.owners else (SWITCH,)
            depth = len(path)
            if not owners and depth > 1 and inner(self.rules, depth).fullmatch(path[-1]):
                owners = (SWITCH,)  # a line of QoS in a section that is not known
            if owners:
                shown = path[1:] if SWITCH not in owners else ()
                yield Item(owners, JOINT.join(path), JOINT.join(shown or path)), path

    def _consume(self, path: tuple[str, ...], out: dict[Place, str]) -> bool:
        """Add the values of a line; whether a rule knows it, as a line or as a section."""
        for rule in self.rules:
            if hit := rule.match(path):
                for name in hit[0]:
                    place = Place(rule.kind, name, "")
                    out[place] = rule.joined(out.get(place, ""), hit[1])
                if len(out) > MOST:
                    raise BadState(f"configuration of more than {MOST} values")
                return True
        return not self.owners or any(rule.heads(path) for rule in self.rules)

    def _owners(self, line: str) -> tuple[str, ...]:
        """The owners of an outermost line; (): it is not near QoS."""
        for shape, owner in self.owners:
            if hit := shape.fullmatch(line):
                if owner == MEMBERS:
                    return tuple(members(hit[1]))
                return (owner.format(*hit.groups()),)
        return ()

    def matters(self, path: tuple[str, ...]) -> bool:
        """Whether a line is near QoS, and not of no matter."""
        return bool(self._owners(path[0])) and not reason(self.idle, JOINT.join(path))

    def near(self, ports: Iterable[str], present: State) -> set[str]:
        """The whole switch, the ports with their subinterfaces, and all that is bound there."""
        if not any(place.kind == UNREAD for place in present):
            return set()
        refers: dict[str, set[str]] = {}
        for place, value in present.items():
            if place.kind != UNREAD:
                rule = self._rule(place, value)
                for owner in self._owners(rule.lines(place.name, value)[0]):
                    refers.setdefault(owner, set()).update(rule.owners(place.name, value))
        inside = tuple(f"{port}." for port in ports)
        below = {
            place.name
            for place, why in present.items()
            if place.kind == UNREAD
            and (place.name.startswith(inside) or self._is_around(place.name, why))
        }
        below |= {owner for owner in refers if self.around.fullmatch(owner)}
        doubtful = {
            place.name
            for place, why in present.items()
            if place.kind == UNREAD and why == NOT_UNDERSTOOD and self.certain.fullmatch(place.name)
        }
        return reached([SWITCH, *ports, *below, *(doubtful - refers.keys())], refers)

    def _is_around(self, owner: str, why: str) -> bool:
        return why != NOT_UNDERSTOOD and self.around.fullmatch(owner) is not None

    def commands(self, changes: Sequence[Change], then: State) -> list[str]:
        """The commands that lead to the state `then`. First they remove values that cannot be
        overwritten, then set values, then remove values, bindings before the bound objects."""
        replaced, wanted, gone = [], [], []
        for change in changes:
            if change.after is not None:
                wanted.append((change.place, change.after))
                if change.before is not None and self._rule(change.place, change.before).adds:
                    replaced.append((change.place, change.before))
            elif change.before is not None:
                gone.append((change.place, change.before))
        paths = [self._undo(place, value) for place, value in self._in_order(replaced)]
        paths += [self._lines(place, value) for place, value in self._in_order(wanted)]
        return self.nest([*paths, *self._removals(gone, then)])

    def undone(self, gone: Iterable[tuple[Place, str]]) -> list[str]:
        """The commands that remove each value, in a language without sections."""
        return [self._undo(*each)[-1] for each in reversed(self._in_order(gone))]

    def _removals(self, gone: list[tuple[Place, str]], then: State) -> Iterator[tuple[str, ...]]:
        """Commands that remove each line, or the outermost section that becomes empty."""
        left = {
            section
            for item in then.items()
            if item[0].kind != UNREAD
            for section in _sections(self._lines(*item))
        }
        told: set[tuple[str, ...]] = set()
        for place, value in reversed(self._in_order(gone)):
            empty = [
                section
                for section in _sections(self._lines(place, value))
                if section not in left and not section[-1].startswith(self.permanent)
            ]
            if not empty:
                yield self._undo(place, value)
            elif empty[0] not in told:
                told.add(empty[0])
                yield (*empty[0][:-1], f"no {empty[0][-1]}")

    def _lines(self, place: Place, value: str) -> tuple[str, ...]:
        return self._rule(place, value).lines(place.name, value)

    def begins(self, place: Place, value: str) -> str:
        """The first words of the line of a value, as the device prints them."""
        return re.split(r" ?[<{]", self._rule(place, value).path[-1])[0]

    def _undo(self, place: Place, value: str) -> tuple[str, ...]:
        return self._rule(place, value).undo_lines(place.name, value)

    def nest(self, paths: Iterable[tuple[str, ...]]) -> list[str]:
        """Lines with their sections; consecutive lines of a section share its header."""
        out: list[str] = []
        open_: tuple[str, ...] = ()
        for path in paths:
            common = 0
            while common < min(len(open_), len(path) - 1) and open_[common] == path[common]:
                common += 1
            out += [
                " " * (self.indent * depth) + line
                for depth, line in enumerate(path)
                if depth >= common
            ]
            open_ = path[:-1]
        return out

    def _in_order(self, values: Iterable[tuple[Place, str]]) -> list[tuple[Place, str]]:
        """Sort by outermost section, section, rule and name, so that each section occurs once."""
        order = {rule.kind: at for at, rule in reversed(list(enumerate(self.rules)))}
        first = {rule.path[0]: at for at, rule in reversed(list(enumerate(self.rules)))}

        def key(each: tuple[Place, str]) -> Any:
            place, value = each
            rule = self._rule(place, value)
            sections = tuple(map(natural, rule.lines(place.name, value)[:-1]))
            return first[rule.path[0]], sections, order[place.kind], natural(place.name)

        return sorted(values, key=key)

    def _rule(self, place: Place, value: str) -> Rule:
        for rule in self.rules:
            if rule.kind == place.kind and rule.fits(value):
                return rule
        raise BadState(f"switchcfg has no command for {place.kind} {place.name} = {value!r}")

    def _paths(self, text: str) -> Iterator[tuple[str, ...]]:
        """Each line with the sections around it."""
        sections: list[tuple[int, str]] = []
        for raw in text.splitlines():
            line = raw.strip()
            line = "" if line.startswith(self.comment) else self.spell(line)
            if not line:
                continue
            column = len(raw) - len(raw.lstrip()) if self.indent else 0
            while sections and sections[-1][0] >= column:
                sections.pop()
            yield (*(section for _, section in sections), line)
            if self.indent:
                sections.append((column, line))


def _sections(path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The sections around a line, the outermost first."""
    return (path[:depth] for depth in range(1, len(path)))
