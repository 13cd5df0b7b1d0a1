"""Text that a terminal shows and does not obey: names of jobs and hosts, and what peers said.

`harmless` is for texts where they come in, and for those of errors: letters of all languages stay.
What goes to a terminal is ASCII only: the second byte of many a letter in UTF-8 lies in 0x80..0x9f,
where a terminal of eight bits has its control characters. The log of the daemon is ASCII for the
same reason.
"""

import re
from typing import Final

# C0 but for newline, DEL and C1; what turns the direction of text (Unicode, "Bidi_Control"); line
# and paragraph separators; halves of surrogate pairs, which no frame can carry.
_HARMFUL: Final = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_NOT_IN_LINE: Final = re.compile(r"[^ -~]")
_NOT_IN_LINES: Final = re.compile(r"[^ -~\n]")


def harmless(text: str) -> str:
    """`text` with every control character but newline as its escape, as Python writes it."""
    return text if text.isprintable() else _HARMFUL.sub(_escape, text)


def one_line(text: str) -> str:
    """`text` with every character but printable ASCII as its escape, as Python writes it."""
    return _NOT_IN_LINE.sub(_escape, text)


def lines(text: str) -> str:
    """The same; newlines stay."""
    return _NOT_IN_LINES.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
