"""Types of command-line options: each turns a word into a value, or refuses it."""

import argparse
from collections.abc import Callable

from switchcfg.cli.workflow import LONGEST
from switchcfg.intent.table import bits_per_second


def rate(text: str) -> int:
    """The bit/s of a rate such as 100Gbit."""
    try:
        return bits_per_second(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None


def up_to(most: int) -> Callable[[str], int]:
    """The type of whole numbers from 1 to `most`."""

    def number(text: str) -> int:
        if not text.isdecimal() or not 1 <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number from 1 to {most}")
        return int(text)

    return number


def seconds(text: str) -> int:
    """The seconds until a device reverts."""
    if not text.isdecimal() or not 5 <= int(text) <= LONGEST:
        raise argparse.ArgumentTypeError(
            f"{text!r}: must be a whole number of seconds from 5 to {LONGEST}"
        )
    return int(text)
