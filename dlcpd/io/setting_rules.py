"""Rules of settings: stated at the field of a table, checked in one place.

A rule is the `metadata` of a dataclass field, so one line says name, type, bounds and default.
"""

from dataclasses import MISSING, field
from typing import Any, Final

from dlcpd.contract.toml_text import MAX_BITS, printable, shown

MAX_TEXT: Final = 1024  # characters
_KINDS: Final = {bool: "true or false", int: "an integer", float: "a number", str: "a text"}


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


def problem(value: Any, rule: Any) -> str:
    """The rule that `value` breaks, in words, or an empty string."""
    wanted = rule["type"]
    if type(value) is int and value.bit_length() > MAX_BITS:  # it cannot become a float
        return f"is an integer of {value.bit_length()} bits, at most {MAX_BITS}"
    if wanted is float and type(value) is int:
        value = float(value)
    if type(value) is not wanted:  # isinstance would let True pass as an integer
        return f"{shown(value)} is not {_KINDS[wanted]}"
    if wanted in (int, float) and not rule["low"] <= value <= rule["high"]:
        return f"{value} is outside {rule['low']}..{rule['high']}"
    if wanted is str and len(value) > rule["high"]:
        return f"length {len(value)}, at most {rule['high']}"
    if wanted is str and not printable(value):
        return f"{shown(value)} has a character that cannot be printed"
    if "choices" in rule and value not in rule["choices"]:
        return f"{shown(value)} is none of {', '.join(rule['choices'])}"
    return ""
