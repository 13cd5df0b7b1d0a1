"""One kind of command line: a template that writes it, and reads it. Pure.

A template's `{name}` is part of the place, its `<value>` part of the value: "qos map traffic-class
{tc} to tx-queue <queue>". For `{name+}`, devices print several names on one line and accept one:
each is read as a separate line. A `<value*>` takes the rest of a line. Holes with a name in NUMBERS
take digits only.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from typing import Final

from switchcfg.errors import BadState
from switchcfg.plan.state import natural
from switchcfg.platforms.name_ranges import members

SEPARATOR: Final = "|"  # between the parts of a place's name; no device allows it in a name
WORD: Final = re.compile(r"[^\s|]{1,128}")  # a value for a template: never a line's end
NUMBERS: Final = frozenset(
    [
        "dscp",
        "tc",
        "queue",
        "priority",
        "dp",
        "min",
        "max",
        "most",
        "w",
        "percent",
        "group",
        "bytes",
    ]
)
_ONLY: Final = re.compile(
    "qos |priority-flow-control |service-p|random-detect |set qos-group |pause |queue-limit |"
    "bandwidth remaining "
)
_HOLE: Final = re.compile(r"\{(\w+)(\+?)\}|<(\w+)(\*?)>")


@dataclass(frozen=True)
class Rule:
    """One kind of line."""

    kind: str
    path: tuple[str, ...]  # the sections around it and the line itself
    undo: str  # the command that removes the line, in the same sections
    adds: bool = False  # a second line is added to the first instead of replacing it
    joins: bool = False  # and continues its list: `1,2` and `3` are `1,2,3`
    refers: tuple[str, ...] = ()  # owners that the line binds, with the holes of its path

    def lines(self, name: str, value: str) -> tuple[str, ...]:
        """The sections and the line for one value."""
        return tuple(self._fill(text, name, value) for text in self.path)

    def undo_lines(self, name: str, value: str) -> tuple[str, ...]:
        """The sections and the command that removes the line."""
        return (*self.lines(name, value)[:-1], self._fill(self.undo, name, value))

    def joined(self, first: str, second: str) -> str:
        """The value of two lines for one place; `first` is "" if there is only one line."""
        if not self.joins or not first:
            return second
        return ",".join(sorted({*first.split(","), *second.split(",")}, key=natural))

    def fits(self, value: str) -> bool:
        """Whether this rule has as many holes as `value` has words."""
        words, holes = len(value.split()), len(self._holes[1])
        return words >= holes > 0 if self._tail else words == holes

    def owners(self, name: str, value: str) -> Iterator[str]:
        """The owners that a value binds."""
        return (self._fill(text, name, value) for text in self.refers)

    def heads(self, path: Sequence[str]) -> bool:
        """Whether the lines are sections around lines of this kind."""
        shapes = self._shapes[: len(path)]
        return len(path) < len(self.path) and all(map(re.Pattern.fullmatch, shapes, path))

    def match(self, path: Sequence[str]) -> tuple[list[str], str] | None:
        """(names, their common value) if the lines are of this kind; else None.

        Raises: BadState for a list that is too long.
        """
        if len(path) != len(self.path):
            return None
        found: dict[str, str] = {}
        for shape, line in zip(self._shapes, path, strict=True):
            hit = shape.fullmatch(line)
            if not hit:
                return None
            found |= hit.groupdict()
        names, values = self._holes
        parts = [members(found[n]) if n in self._several else [found[n]] for n in names]
        return list(map(SEPARATOR.join, product(*parts))), " ".join(found[v] for v in values)

    @cached_property
    def _holes(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(names of the place's holes, names of the value's holes), in the order of the lines."""
        found = [hole for text in self.path for hole in _HOLE.finditer(text)]
        return tuple(h[1] for h in found if h[1]), tuple(h[3] for h in found if h[3])

    @cached_property
    def _tail(self) -> bool:
        """Whether the last hole takes the rest of the line."""
        return self.path[-1].endswith("*>")

    @cached_property
    def _several(self) -> frozenset[str]:
        return frozenset(hole[1] for text in self.path for hole in _HOLE.finditer(text) if hole[2])

    @cached_property
    def _shapes(self) -> tuple[re.Pattern[str], ...]:
        return tuple(re.compile(_shape(text)) for text in self.path)

    def _fill(self, text: str, name: str, value: str) -> str:
        names, values = self._holes
        parts = name.split(SEPARATOR) if names else ()
        words = dict(zip(names, parts, strict=True))
        words |= zip(values, value.split(None, max(len(values) - 1, 0)), strict=True)
        for word in (each for found in words.values() for each in found.split() or [""]):
            if not WORD.fullmatch(word):
                raise BadState(f"{word!r} has characters that are not allowed in a command")
        return _HOLE.sub(lambda hole: words[hole[1] or hole[3]], text)


def _shape(text: str) -> str:
    out, end = "", 0
    for hole in _HOLE.finditer(text):
        name = hole[1] or hole[3]
        more = r"(?: \d[\d,-]*)*" if hole[2] else r"(?: [^\s|]+)*" if hole[4] else ""
        word = r"[^\s|]+" if name not in NUMBERS else r"\d[\d,-]*" if hole[2] else r"\d+"
        word = rf"(?P<{name}>{word}{more})"
        out += re.escape(text[end : hole.start()]) + word
        end = hole.end()
    return out + re.escape(text[end:])


@cache
def inner(rules: tuple[Rule, ...], depth: int) -> re.Pattern[str]:
    """Matches the lines of rules in `depth` - 1 sections that only QoS has, whatever the sections.
    Others, such as `match ip`, are lines of routes as well."""
    lines = (rule.path[-1] for rule in rules if len(rule.path) == depth)
    shapes = {_shape(line) for line in lines if _ONLY.match(line)}
    return re.compile("|".join(re.sub(r"\?P<\w+>", "?:", each) for each in shapes) or "(?!)")
