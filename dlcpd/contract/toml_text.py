"""Reads TOML, and writes values of a file in errors as TOML has them, never as Python does."""

import ast
import re
import tomllib
from collections.abc import Iterable
from datetime import date, datetime, time
from typing import Any, Final

from dlcpd.contract.errors import BadConfig
from dlcpd.contract.printable import harmless

LONGEST: Final = 64  # characters of a value in an error
LONGEST_ERROR: Final = 400  # characters: a key may be as long as the file
_PLACE: Final = 40  # characters at the end of an error, which tell line and column
MAX_BITS: Final = 64  # of an integer that is shown; Python does not print one of 5,000 digits
# tomllib names tables as Python writes tuples: ('daemon',).
_OF_TUPLE: Final = re.compile(r"(Cannot [a-z ]+) (\(.*\))(?: twice)?( \(at [^()]*\))", re.DOTALL)
_TOO_MANY: Final = re.compile(r"\d[\d_]{4300}")  # digits for int(): sys.int_info
_PLAIN: Final = {
    "Cannot declare": "table [{}] is there twice",
    "Cannot redefine namespace": "table [{}] is there twice",
    "Cannot mutate immutable namespace": "{} has its value, and cannot get another key",
}
_TWICE: Final = ("Cannot overwrite a value", "the key has a value already")


def loaded(text: str) -> dict[str, Any]:
    """The tables of a TOML text. Raises: BadConfig that says what is wrong, in one line, and where
    if that is known."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise BadConfig(_plain(str(exc))) from None
    except (ValueError, OverflowError):  # of int()
        raise BadConfig(f"a number has too many digits{_line_of(_TOO_MANY, text)}") from None
    except RecursionError:
        raise BadConfig("lists or tables are nested too deeply") from None


def shown(value: object) -> str:
    """A value of a TOML text as TOML writes it: one line of at most LONGEST characters."""
    try:
        text = _written(value)
    except RecursionError:
        return "lists or tables that are nested too deeply"
    return _cut(_in_line(text), LONGEST)


def named(key: str) -> str:
    """A key of a TOML text, for errors: one line of at most LONGEST characters."""
    return _cut(_in_line(key), LONGEST)


def hint(key: str, known: Iterable[str]) -> str:
    """What an error says after the name of an unknown key: the key that may be meant, or all."""
    import difflib  # noqa: PLC0415  # for errors only: commands for probes import little

    names = list(known)
    near = difflib.get_close_matches(key[:LONGEST], names, n=1)
    if near:
        return f"did you mean {named(near[0])}?"
    return "known: " + _cut(_in_line(", ".join(names)), LONGEST_ERROR)


def printable(text: str) -> bool:
    """Whether no character of `text` changes a line, or the direction of writing in it."""
    return _in_line(text) == text


def _written(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() if value.bit_length() > MAX_BITS:
            return f"an integer of {value.bit_length()} bits"
        case str():  # Python's two forms of a string are TOML's, but for some escapes
            return repr(value[:LONGEST])
        case datetime() | date() | time():
            return value.isoformat()
        case list():
            return f"[{', '.join(map(_written, value[:LONGEST]))}]"
        case dict():
            rows = [f"{key} = {_written(row)}" for key, row in list(value.items())[:LONGEST]]
            return f"{{ {', '.join(rows)} }}" if rows else "{}"
        case _:
            return str(value)


def _plain(message: str) -> str:
    found = _OF_TUPLE.fullmatch(message)
    if found is None or found[1] not in _PLAIN:
        text = message.replace(*_TWICE)
    else:
        name = ".".join(ast.literal_eval(found[2]))
        text = _PLAIN[found[1]].format(name) + found[3]
    text = _in_line(text)
    if len(text) <= LONGEST_ERROR:
        return text
    return _cut(text, LONGEST_ERROR - _PLACE) + text[-_PLACE:]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _line_of(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return f" (at line {text.count(chr(10), 0, found.start()) + 1})" if found else ""


def _in_line(text: str) -> str:
    return harmless(text).replace("\n", "\\n")
