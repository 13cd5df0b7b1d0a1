"""On which line of a TOML text each key stands, which `tomllib` does not say. Pure."""

import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final

Path = tuple[str | int, ...]  # keys, and positions in arrays of tables

# What can hide a bracket or a line's end from a reader that goes line by line.
_TOKEN: Final = re.compile(
    r'"""|\'\'\'|"(?:\\.|[^"\\])*"|\'[^\']*\'|#.*|[\[\]{}]',
)
# The end of a string that goes over several lines, which may have two quotes before it.
_END: Final = {
    '"""': re.compile(r'(?:\\.|[^\\])*?"{3,5}'),
    "'''": re.compile(r".*?'{3,5}"),
}
_KEY: Final = re.compile(r"""\s*((?:"(?:\\.|[^"\\])*"|'[^']*'|[A-Za-z0-9_\-.\s])+?)\s*=""")


def lines_of(text: str) -> dict[Path, int]:
    """Path -> line, from 1, of every header and key of a text that `tomllib` accepts.

    Keys inside a value (inline tables) have no entry: ask `line_at`, which goes up.
    """
    return _Scan().run(text)


def line_at(lines: Mapping[Path, int], path: Path) -> int:
    """The line of `path`, or of the nearest table around it; 1 where nothing is known."""
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return 1


class _Scan:
    """Where a line stands: in which table, and inside which value that goes on."""

    def __init__(self) -> None:
        self.lines: dict[Path, int] = {}
        self.table: Path = ()
        self.last: dict[Path, int] = {}  # array of tables -> its newest element
        self.depth = 0  # brackets open
        self.quote = ""  # of the multi-line string that is open

    def run(self, text: str) -> dict[Path, int]:
        for number, line in enumerate(text.split("\n"), start=1):
            if not self.depth and not self.quote:
                line = self._statement(line, number)  # noqa: PLW2901  # what is left of it
            self._skip(line)
        return self.lines

    def _statement(self, line: str, number: int) -> str:
        """Note what the line begins; what remains is a value."""
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
