"""Escapes control characters in text for terminals and logs: names of jobs, hosts, texts of peers.

`harmless` is for texts on arrival and for texts of errors: it keeps letters of all languages.
Output to a terminal and the log of the daemon are ASCII only: the second byte of many letters in
UTF-8 lies in 0x80..0x9f, where an 8-bit terminal has its control characters.
"""

import re
from typing import Final

# C0 except newline, DEL and C1; characters that change the direction of text (Unicode,
# "Bidi_Control"); line and paragraph separators; halves of surrogate pairs, which no frame can
# carry.
_HARMFUL: Final = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_NOT_IN_LINE: Final = re.compile(r"[^ -~]")
_NOT_IN_LINES: Final = re.compile(r"[^ -~\n]")


def harmless(text: str) -> str:
    """`text` with every control character except newline escaped, as Python writes it."""
    return text if text.isprintable() else _HARMFUL.sub(_escape, text)


def one_line(text: str) -> str:
    """`text` with every character except printable ASCII escaped, as Python writes it."""
    return _NOT_IN_LINE.sub(_escape, text)


def lines(text: str) -> str:
    """As `one_line`, but newlines are kept."""
    return _NOT_IN_LINES.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
