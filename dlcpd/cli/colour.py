"""Colour for lines about problems, where a person reads them in a terminal."""

import os
import re
from collections.abc import Callable, Mapping
from typing import Final, TextIO

Style = Callable[[str], str]  # of a line of printable ASCII
_RED, _YELLOW, _PLAIN = "\x1b[1;31m", "\x1b[33m", "\x1b[0m"  # ECMA-48, 8.3.117
# Alarms, lines of `status` about them, and rows of tables with the cell "broken", "down" or "gray".
_BAD: Final = re.compile(
    r"(BROKEN|ENGINE|SILENT|SECURITY): |  rank \d+ is broken: |.* is (SUSPECTED|down)\b"
    r"|.*  (broken|down)(  |$)"
)
_WARNING: Final = re.compile(
    r"(LATE|BOUND|PATH|ADDRESS|METRICS|SETTINGS|SHORT|MORE|HOST): |\d+ settings wait "
    r"|  rank \d+ waits for |.* is gray$|.*  gray(  |$)"
)


def wanted(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether text for `stream` may have colours. Source: no-color.org."""
    terminal = environ.get("TERM", "dumb") != "dumb" and stream.isatty()
    return terminal and not environ.get("NO_COLOR")


def by_alarm(line: str) -> str:
    """Red where something does not work, yellow where it works less well."""
    if _BAD.match(line):
        return f"{_RED}{line}{_PLAIN}"
    return f"{_YELLOW}{line}{_PLAIN}" if _WARNING.match(line) else line


def by_verdict(line: str) -> str:
    """The first word of a row of `doctor`: red for fail, yellow for warn."""
    for word, colour in (("fail", _RED), ("warn", _YELLOW)):
        if line.startswith(f"{word} "):
            return f"{colour}{word}{_PLAIN}{line.removeprefix(word)}"
    return line
