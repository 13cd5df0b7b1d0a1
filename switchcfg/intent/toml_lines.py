"""Finds the line of each key of a TOML text, which `tomllib` does not tell. Pure."""

import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final

Path = tuple[str | int, ...]  # keys, and positions in arrays of tables

# Brackets, and the tokens that can hide a bracket or the end of a line.
_TOKEN: Final = re.compile(
    r'"""|\'\'\'|"(?:\\.|[^"\\])*"|\'[^\']*\'|#.*|[\[\]{}]',
)
# The end of a multi-line string; two of the string's own quotes may precede it.
_END: Final = {
    '"""': re.compile(r'(?:\\.|[^\\])*?"{3,5}'),
    "'''": re.compile(r".*?'{3,5}"),
}
_KEY: Final = re.compile(r"""\s*((?:"(?:\\.|[^"\\])*"|'[^']*'|[A-Za-z0-9_\-.\s])+?)\s*=""")


def lines_of(text: str) -> dict[Path, int]:
    """Path -> line, from 1, of every header and key of a text that `tomllib` accepts.

    Keys inside a value (inline tables) have no entry: `line_at` finds the table around them.
    """
    return _Scan().run(text)


def line_at(lines: Mapping[Path, int], path: Path) -> int:
    """The line of `path`, or of the nearest table around it; 1 if none is known."""
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return 1


class _Scan:
    """State of a scan by lines: the current table, and the value that is still open."""

    def __init__(self) -> None:
        self.lines: dict[Path, int] = {}
        self.table: Path = ()
        self.last: dict[Path, int] = {}  # array of tables -> its newest element
        self.depth = 0  # open brackets
        self.quote = ""  # delimiter of the open multi-line string

    def run(self, text: str) -> dict[Path, int]:
        for number, line in enumerate(text.split("\n"), start=1):
            if not self.depth and not self.quote:
                line = self._statement(line, number)  # noqa: PLW2901  # its remainder
            self._skip(line)
        return self.lines

    def _statement(self, line: str, number: int) -> str:
        """Note the header or key that begins on this line; returns the value after the key."""
        stripped = line.strip()
        if stripped.startswith("["):
            self._header(stripped, number)
            return ""
        found = _KEY.match(line)
        if not found or stripped.startswith("#"):
            return ""
        path = self.table
        for part in _keys(f"{found[1]} = 0"):
            path += (part,)
            self.lines.setdefault(path, number)
        return line[found.end() :]

    def _header(self, line: str, number: int) -> None:
        keys = _keys(line)
        path: Path = ()
        for position, key in enumerate(keys, start=1):
            path += (key,)
            self.lines.setdefault(path, number)
            if line.startswith("[[") and position == len(keys):
                self.last[path] = self.last.get(path, -1) + 1
            if path in self.last:
                path += (self.last[path],)
        self.lines[path] = number
        self.table = path

    def _skip(self, rest: str) -> None:
        while rest:
            if self.quote:
                end = _END[self.quote].match(rest)
                if not end:
                    return
                self.quote, rest = "", rest[end.end() :]
                continue
            token = _TOKEN.search(rest)
            if not token:
                return
            rest = rest[token.end() :]
            if token[0] in ('"""', "'''"):
                self.quote = token[0]
            elif token[0] in "[{":
                self.depth += 1
            elif token[0] in "]}":
                self.depth -= 1


def _keys(statement: str) -> list[str]:
    """The parts of the dotted key of a header or an assignment, as `tomllib` reads them."""
    found: Any = tomllib.loads(statement)
    out = []
    while isinstance(found, dict) and found:
        ((key, found),) = found.items()
        out.append(key)
    return out
