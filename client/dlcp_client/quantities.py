"""Checks of numbers that callers give: their type, and their range."""

from math import inf
from numbers import Integral, Real
from sys import float_info
from typing import Any

from dlcpd.contract.errors import BadConfig


def is_whole(value: Any, least: float, most: float = inf) -> bool:
    """Whether it is a whole number of Python or numpy, not a bool, in this range."""
    kind = not isinstance(value, bool) and isinstance(value, Integral)
    return kind and least <= int(value) <= most


def whole(what: str, value: Any, least: int = 0, most: float = inf) -> int:
    """The number as an int. Raises: BadConfig naming `what`, and the range."""
    if not is_whole(value, least, most):
        allowed = f"{least} or more" if most == inf else f"{least} to {most}"
        raise BadConfig(f"{what}={value!r:.40} is not valid: use a whole number, {allowed}")
    return int(value)


def number(what: str, value: Any, least: float = 0, below: float = inf) -> float:
    """The number as a float, at least `least` and below `below`, so finite. Raises: as `whole`."""
    kind = not isinstance(value, bool) and isinstance(value, Real)
    if not kind or not least <= value < below or abs(value) > float_info.max:
        known = [f"{least:g} or more"] * (least != -inf) + [f"below {below:g}"] * (below != inf)
        allowed = f"use a number, {' and '.join(known) or 'finite'}"
        raise BadConfig(f"{what}={value!r:.40} is not valid: {allowed}")
    return float(value)


def switch(what: str, value: Any) -> bool:
    """True or False. Raises: BadConfig naming `what`."""
    if not isinstance(value, bool):
        raise BadConfig(f"{what}={value!r:.40} is not valid: use True or False")
    return value
