"""Rules for the fields of a message or table: stated at the field, checked in one place.

A rule is the `metadata` of a dataclass field, so one line says name, type, bounds
and unit. Used by the IPC messages, the peers' messages and the configuration.
"""

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Final, Self

from dlcpd.contract.printable import harmless

MAX_TEXT: Final = 1024  # characters of a name, host or error text
MAX_BITS: Final = 64  # of an integer; a larger one cannot become a float, nor always be printed


@dataclass(frozen=True, slots=True)
class Specification:
    """The fields of a dataclass with their rules, and the rules sorted for a fast check."""

    fields: tuple[tuple[str, Any], ...]  # name, rule
    types: tuple[type, ...]
    bounds: tuple[tuple[int, float, float], ...]  # position, low, high of numbers
    choices: tuple[tuple[int, frozenset[str]], ...]  # position, allowed texts
    lengths: tuple[tuple[int, int], ...]  # position, limit of other texts (characters) and bytes
    texts: tuple[tuple[int, int], ...]  # likewise, of texts alone
    lists: tuple[tuple[int, Any], ...]  # position, class of the elements

    @classmethod
    def of(cls, kind: Any) -> Self:
        """The specification of a dataclass whose fields have rules."""
        found = [(f.name, f.metadata) for f in fields(kind)]
        rules = list(enumerate(rule for _, rule in found))
        return cls(
            tuple(found),
            tuple(rule["type"] for _, rule in rules),
            tuple((at, rule["low"], rule["high"]) for at, rule in rules if "low" in rule),
            tuple((at, frozenset(rule["choices"])) for at, rule in rules if "choices" in rule),
            tuple(
                (at, rule["high"])
                for at, rule in rules
                if rule["type"] in (str, bytes) and "choices" not in rule
            ),
            tuple(
                (at, rule["high"])
                for at, rule in rules
                if rule["type"] is str and "choices" not in rule
            ),
            tuple((at, rule["of"]) for at, rule in rules if "of" in rule),
        )

    @property
    def names(self) -> list[str]:
        """Names of the fields, in order."""
        return [name for name, _ in self.fields]


def integer(low: int, high: int, default: Any = MISSING) -> Any:
    """An integer within low..high."""
    return field(default=default, metadata={"type": int, "low": low, "high": high})


def real(low: float, high: float, default: Any = MISSING) -> Any:
    """A finite float within low..high; an integer is taken as one."""
    return field(default=default, metadata={"type": float, "low": low, "high": high})


def string(limit: int = MAX_TEXT, default: Any = MISSING, *, hidden: bool = False) -> Any:
    """A string of at most `limit` characters; `hidden` from the repr, where it is a secret."""
    return field(default=default, repr=not hidden, metadata={"type": str, "high": limit})


def one_of(*choices: str, default: Any = MISSING) -> Any:
    """One of the given strings."""
    return field(default=default, metadata={"type": str, "choices": choices, "high": MAX_TEXT})


def flag(default: Any = MISSING) -> Any:
    """True or False."""
    return field(default=default, metadata={"type": bool})


def octets(limit: int) -> Any:
    """At most `limit` bytes."""
    return field(metadata={"type": bytes, "high": limit})


def mapping() -> Any:
    """A JSON-like map, whose content is not checked."""
    return field(metadata={"type": dict})


def integers(limit: int) -> Any:
    """A list of at most `limit` integers."""
    return field(metadata={"type": list, "high": limit, "of": int})


def rows(limit: int, kind: type) -> Any:
    """A list of at most `limit` rows of a NamedTuple class, whose cells have its types exactly."""
    return field(metadata={"type": list, "high": limit, "of": kind})


def problem(value: Any, rule: Any) -> str:
    """The rule that `value` breaks, in words, or an empty string."""
    wanted = rule["type"]
    if type(value) is int and value.bit_length() > MAX_BITS:
        return f"is an integer of {value.bit_length()} bits, at most {MAX_BITS}"
    if wanted is float and type(value) is int:
        value = float(value)
    if type(value) is not wanted:  # isinstance would let True pass as an integer
        return f"is {type(value).__name__}, need {wanted.__name__}"
    if wanted in (int, float) and not rule["low"] <= value <= rule["high"]:
        return f"{value} is outside {rule['low']}..{rule['high']}"
    if wanted in (str, bytes, list) and len(value) > rule["high"]:
        return f"length {len(value)}, at most {rule['high']}"
    if "choices" in rule and value not in rule["choices"]:
        return f"{value[:64]!r} is none of {', '.join(rule['choices'])}"
    if wanted is list:
        return _list_problem(value, rule["of"])
    return ""


def problem_among(values: Sequence[Any], spec: Specification) -> str:
    """The problem of the first wrong field, as "field: ...", or an empty string."""
    if _plain(values, spec):
        return ""
    for value, (name, rule) in zip(values, spec.fields, strict=True):
        if wrong := problem(value, rule):
            return f"{name}: {wrong}"
    return ""


def _plain(values: Sequence[Any], spec: Specification) -> bool:
    """Whether all fields are certainly right, in a few steps for all of them: every operation has
    messages. False: they must be checked one by one."""
    if tuple(map(type, values)) != spec.types:
        return False
    for at, low, high in spec.bounds:
        if not low <= values[at] <= high:  # the bounds of integers are within MAX_BITS
            return False
    for at, choices in spec.choices:
        if values[at] not in choices:
            return False
    for at, limit in spec.lengths:
        if len(values[at]) > limit:
            return False
    return not any([values[at] for at, _ in spec.lists])


def with_rows(values: list[Any], spec: Specification) -> list[Any]:
    """Convert checked values in place: rows, which arrive as lists, become their class; control
    characters in texts are escaped, within the limit of the field."""
    for at, limit in spec.texts:
        if not values[at].isprintable():
            values[at] = harmless(values[at])[:limit]
    for at, kind in spec.lists:
        if kind is not int and values[at]:
            texts = str in kind.__annotations__.values()
            values[at] = [kind(*(map(_cell, cells) if texts else cells)) for cells in values[at]]
    return values


def _cell(value: Any) -> Any:
    return harmless(value)[:MAX_TEXT] if isinstance(value, str) else value


def _list_problem(values: list[Any], kind: Any) -> str:
    if kind is int:
        right = all(type(value) is int and value.bit_length() <= MAX_BITS for value in values)
        return "" if right else "a list of integers"
    columns, forms = tuple(kind.__annotations__.values()), (list, kind)
    for row in values:
        if not isinstance(row, forms) or tuple(type(cell) for cell in row) != columns:
            return f"a row is [{', '.join(c.__name__ for c in columns)}]"
        for cell in row:
            if isinstance(cell, str) and len(cell) > MAX_TEXT:
                return f"a text of {len(cell)} characters, at most {MAX_TEXT}"
    return ""
