"""All that the command prints goes through here.

Names, errors and values come from devices and files, and may hold what steers a terminal: escape
sequences (C0 and C1), marks that turn the direction of text, ends of lines that forge another one.
"""

import json
import re
import sys
from typing import Any

from switchcfg.errors import SwitchcfgError


def printable(text: str, *, keep: str = "") -> str:
    """Text with every character that is not printed as itself written as an escape, but `keep`."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else _escape(char) for char in text)


def _escape(char: str) -> str:
    number = ord(char)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def tell(line: str) -> None:
    """One line for people, on standard error."""
    sys.stderr.write(f"{printable(line)}\n")


def tell_error(exc: SwitchcfgError, device: str) -> None:
    """An error, on standard error; it names the device that it is about."""
    named = re.search(rf"(?<![\w.-]){re.escape(device)}(?![\w-])", str(exc))
    before = "switchcfg: " if named else f"switchcfg: {device}: "
    *lines, last = exc.lines
    for line in (*lines, f"{last} [{exc.code}]"):
        tell(f"{before}{line}")
        before = ""


def put(line: str) -> None:
    """One line of what was asked for, on standard output."""
    sys.stdout.write(f"{printable(line)}\n")


def put_text(text: str) -> None:
    """Lines of what was asked for, as they are."""
    sys.stdout.write(printable(text, keep="\n\t"))


def put_json(document: Any) -> None:
    """What was asked for, for programs; they too may print it, so it is ASCII."""
    text = json.dumps(document, indent=1).replace("\x7f", "\\u007f")
    sys.stdout.write(f"{text}\n")


def error_document(code: str, message: str) -> dict[str, str]:
    """How every error is told in JSON."""
    return {"code": code, "message": message}
