"""Parses and formats amounts: sizes, fractions, times, lists of them."""

import argparse
import re
from collections.abc import Callable, Collection
from typing import Final, TypeVar

from dlcpd.contract.policy import MAX_LOSS_LIMIT

T = TypeVar("T")

_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_TIME: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(us|ms|s)")
_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_SIZE: Final = re.compile(r"(\d{1,12})([KMG]?)(?:i?B)?", re.IGNORECASE)


def size(text: str) -> int:
    """Bytes in "4096", "4K" or "16MiB": units are powers of 1024.

    Raises: ArgumentTypeError.
    """
    found = _SIZE.fullmatch(text.strip())
    if not found or not int(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write 4096, 4K, 16M or 1G")
    return int(found[1]) * _UNITS[found[2].upper()]


def sizes(text: str) -> list[int]:
    """Bytes in "4K,1M,16M".

    Raises: ArgumentTypeError.
    """
    return [size(part) for part in text.split(",")]


def fraction(text: str) -> float:
    """A number 0..1, or a percentage such as "1%".

    Raises: ArgumentTypeError.
    """
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a fraction; write 0.01 or 1%")
    return value


def duration(text: str) -> float:
    """Seconds in "250us", "2.5ms" or "1s".

    Raises: ArgumentTypeError.
    """
    found = _TIME.fullmatch(text.strip())
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; write 250us, 2.5ms or 1s")
    return float(found[1]) * _SECONDS[found[2]]


def several(kind: Callable[[str], T]) -> Callable[[str], list[T]]:
    """An argparse type: values of `kind`, with commas between them."""

    def parse(text: str) -> list[T]:
        return [kind(part) for part in text.split(",")]

    return parse


def some_of(known: Collection[str]) -> "type[list[str]]":
    """An argparse type: names from `known`, with commas between them."""

    def parse(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(
                    f"{name!r} is not known: choose from {', '.join(known)}"
                )
        return list(dict.fromkeys(names))

    return parse  # type: ignore[return-value]  # as in `whole`


def bound(text: str) -> float:
    """A fraction for `bounded`: above 0, up to MAX_LOSS_LIMIT.

    Raises: ArgumentTypeError.
    """
    value = fraction(text)
    if not 0.0 < value <= MAX_LOSS_LIMIT:
        raise argparse.ArgumentTypeError(
            f"{text!r} is out of range: a bound is above 0, up to {MAX_LOSS_LIMIT}"
        )
    return value


def scale(text: str) -> float:
    """A fraction above 0.

    Raises: ArgumentTypeError.
    """
    value = fraction(text)
    if not value:
        raise argparse.ArgumentTypeError(f"{text!r} is out of range: a scale is above 0, up to 1")
    return value


def ratio(text: str) -> float:
    """A number 0.1..10.

    Raises: ArgumentTypeError.
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 10:
        raise argparse.ArgumentTypeError(f"{text!r} is not a ratio; write a number from 0.1 to 10")
    return value


def injected(text: str) -> float:
    """A fraction of datagrams to drop: up to 0.9.

    Raises: ArgumentTypeError.
    """
    value = fraction(text)
    if value > 0.9:
        raise argparse.ArgumentTypeError(f"{text!r} is out of range: at most 0.9 can be injected")
    return value


def show_size(count: int) -> str:
    """Bytes with the largest unit that leaves a whole number: 65536 -> "64K"."""
    for unit in ("G", "M", "K"):
        if count and count % _UNITS[unit] == 0:
            return f"{count // _UNITS[unit]}{unit}"
    return str(count)


def show_call(collective: str, size: int) -> str:
    """A collective with its size; a barrier, of size 0, has none."""
    return f"{collective} {show_size(size)}" if size else collective


def show_duration(seconds: float) -> str:
    """0.0025 -> "2.5 ms"."""
    return f"{seconds * 1e3:g} ms"


def show_fraction(value: float) -> str:
    """0.0125 -> "1.25 %"."""
    return f"{value * 100:.3g} %"


def show_beside(value: float, limit: float) -> str:
    """A figure in three digits, or in as many as show on which side of its limit it is."""

    def side(figure: float) -> tuple[bool, bool]:
        return figure < limit, figure > limit

    shown = (f"{value:.{digits}g}" for digits in range(3, 17))
    return next((text for text in shown if side(float(text)) == side(value)), repr(value))
