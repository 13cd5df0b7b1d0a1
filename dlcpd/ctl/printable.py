"""Text that a terminal shows and does not obey: names of jobs and hosts, and what peers said.

ASCII only: the second byte of many a letter in UTF-8 lies in 0x80..0x9f, where a terminal of
eight bits has its control characters. The log of the daemon is ASCII for the same reason.
"""

import re
from typing import Final

_NOT_IN_LINE: Final = re.compile(r"[^ -~]")
_NOT_IN_LINES: Final = re.compile(r"[^ -~\n]")


def one_line(text: str) -> str:
    """`text` with every character but printable ASCII as its escape, as Python writes it."""
    return _NOT_IN_LINE.sub(_escape, text)


def lines(text: str) -> str:
    """The same; newlines stay."""
    return _NOT_IN_LINES.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
