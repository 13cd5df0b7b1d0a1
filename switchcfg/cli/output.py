"""Prints all output of the command, with unprintable characters escaped.

Names, errors and values come from devices and files, and may contain terminal controls: escape
sequences (C0 and C1), marks that change the direction of text, line ends that forge a line.
"""

import json
import re
import sys
from typing import Any

from switchcfg.errors import SwitchcfgError


def printable(text: str, *, keep: str = "") -> str:
    """The text, with unprintable characters as escapes, except those in `keep`."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else _escape(char) for char in text)


def _escape(char: str) -> str:
    number = ord(char)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def tell(line: str) -> None:
    """Print one line to standard error."""
    sys.stderr.write(f"{printable(line)}\n")


def tell_error(exc: SwitchcfgError, device: str) -> None:
    """Print an error of a device to standard error, with the device's name."""
    named = re.search(rf"(?<![\w.-]){re.escape(device)}(?![\w-])", str(exc))
    before = "switchcfg: " if named else f"switchcfg: {device}: "
    *lines, last = exc.lines
    for line in (*lines, f"{last} [{exc.code}]"):
        tell(f"{before}{line}")
        before = ""


def put(line: str) -> None:
    """Print one line of the result to standard output."""
    sys.stdout.write(f"{printable(line)}\n")


def put_text(text: str) -> None:
    """Print text of the result to standard output, with its line ends and tabs."""
    sys.stdout.write(printable(text, keep="\n\t"))


def put_json(document: Any) -> None:
    """Print the result as JSON. It is ASCII, because programs may print it to a terminal."""
    text = json.dumps(document, indent=1).replace("\x7f", "\\u007f")
    sys.stdout.write(f"{text}\n")


def error_document(code: str, message: str) -> dict[str, str]:
    """An error as a JSON value."""
    return {"code": code, "message": message}
