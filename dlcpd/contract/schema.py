"""Rules for the fields of a message or table: stated with the field, checked in one place.

A rule is the `metadata` of a dataclass field, so one line says name, type, bounds
and unit. Used by the IPC messages, the peers' messages and the configuration.
"""

from dataclasses import MISSING, field, fields
from typing import Any, Final

MAX_TEXT: Final = 1024  # characters of a name, host or error text
MAX_BITS: Final = 64  # of an integer; a larger one cannot become a float, nor always be printed

Specification = tuple[tuple[str, Any], ...]


def integer(low: int, high: int, default: Any = MISSING) -> Any:
    """An integer within low..high."""
    return field(default=default, metadata={"type": int, "low": low, "high": high})


def real(low: float, high: float, default: Any = MISSING) -> Any:
    """A finite float within low..high; an integer is taken as one."""
    return field(default=default, metadata={"type": float, "low": low, "high": high})


def string(limit: int = MAX_TEXT, default: Any = MISSING) -> Any:
    """A string of at most `limit` characters."""
    return field(default=default, metadata={"type": str, "high": limit})


def one_of(*choices: str, default: Any = MISSING) -> Any:
    """One of the given strings."""
    return field(default=default, metadata={"type": str, "choices": choices, "high": MAX_TEXT})


def flag(default: Any = MISSING) -> Any:
    """True or False."""
    return field(default=default, metadata={"type": bool})


def mapping() -> Any:
    """A JSON-like map, not looked into."""
    return field(metadata={"type": dict})


def integers(limit: int) -> Any:
    """A list of at most `limit` integers."""
    return field(metadata={"type": list, "high": limit, "of": int})


def rows(limit: int, kind: type) -> Any:
    """A list of at most `limit` rows of a NamedTuple class, whose cells have its types exactly."""
    return field(metadata={"type": list, "high": limit, "of": kind})


def specification(kind: Any) -> Specification:
    """(name, rule) of each field of a dataclass."""
    return tuple((f.name, f.metadata) for f in fields(kind))


def problem(value: Any, rule: Any) -> str:
    """What is wrong with `value`, or an empty string."""
    wanted = rule["type"]
    if type(value) is int and value.bit_length() > MAX_BITS:
        return f"is an integer of {value.bit_length()} bits, at most {MAX_BITS}"
    if wanted is float and type(value) is int:
        value = float(value)
    if type(value) is not wanted:  # isinstance would let True pass as an integer
        return f"is {type(value).__name__}, need {wanted.__name__}"
    if wanted in (int, float) and not rule["low"] <= value <= rule["high"]:
        return f"{value} is outside {rule['low']}..{rule['high']}"
    if wanted in (str, list) and len(value) > rule["high"]:
        return f"length {len(value)}, at most {rule['high']}"
    if "choices" in rule and value not in rule["choices"]:
        return f"{value[:64]!r} is none of {', '.join(rule['choices'])}"
    if wanted is list:
        return _list_problem(value, rule["of"])
    return ""


def problem_among(values: dict[str, Any], spec: Specification) -> str:
    """The first field that is wrong and what is, as "field: ...", or an empty string."""
    for name, rule in spec:
        value = values[name]
        if type(value) is int is rule["type"] and rule["low"] <= value <= rule["high"]:
            continue  # most fields, without a call; all bounds are within MAX_BITS
        if wrong := problem(value, rule):
            return f"{name}: {wrong}"
    return ""


def with_rows(values: dict[str, Any], spec: Specification) -> dict[str, Any]:
    """Checked values of fields; rows, which come as lists, are of their class now."""
    for name, rule in spec:
        kind = rule.get("of", int)
        if kind is not int:
            values[name] = [kind(*cells) for cells in values[name]]
    return values


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
