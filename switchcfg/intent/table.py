"""Reads a TOML table key by key. Errors name file, line and field; an unread key is an error."""

import difflib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from switchcfg.errors import BadIntent
from switchcfg.intent.toml_lines import Path, line_at

_REQUIRED: Final = object()
_SIZES: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SIZE: Final = re.compile(r"(\d{1,12})(?:([KMG])(?:iB)?)?", re.IGNORECASE)
_RATES: Final = {"k": 10**3, "m": 10**6, "g": 10**9}
_RATE: Final = re.compile(r"(\d{1,6})([kmg])bit", re.IGNORECASE)
SHOWN: Final = 40  # characters of a wrong value that an error quotes
LIKE: Final = 0.65  # difflib's cutoff: "enc" is like "ecn"; no two keys of one table are alike


@dataclass(frozen=True, slots=True)
class Source:
    """The file of a document, and the lines of its keys."""

    name: str  # as the user wrote it
    lines: Mapping[Path, int] | None  # None: not known

    def error(self, path: Path, why: str) -> BadIntent:
        """`FILE:LINE: FIELD: WHY`."""
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
        line = "" if self.lines is None else f":{line_at(self.lines, path)}"
        return BadIntent(f"{self.name}{line}: {where.lstrip('.')}: {why}")


def among(word: str, known: Collection[str], shown: int = 30) -> str:
    """A suggestion for a misspelled word, if any is near, and at most `shown` known words."""
    near = difflib.get_close_matches(word, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    names = sorted(known)
    rest = f", and {len(names) - shown} more" if len(names) > shown else ""
    return f"{hint} (known: {', '.join(names[:shown]) or 'none'}{rest})"


def bits_per_second(value: Any) -> int:
    """The bit/s of a rate such as "25Gbit". Raises: ValueError."""
    found = _RATE.fullmatch(value.strip()) if isinstance(value, str) else None
    if not found:
        raise ValueError(f'{_show(value)} is not a rate: write "25Gbit" or "800Mbit"')
    return int(found[1]) * _RATES[found[2].lower()]


@dataclass(slots=True)
class Table:
    """Values with their path. Each method reads one key; call `done` last."""

    values: Mapping[str, Any]
    path: Path
    source: Source
    elsewhere: Mapping[str, tuple[Source, Path]] = field(default_factory=dict)  # origin of keys
    _read: set[str] = field(default_factory=set)

    def at(self, key: str) -> tuple[Source, Path]:
        """Source and path of a key: of this table, unless the key came from elsewhere."""
        return self.elsewhere.get(key, (self.source, (*self.path, key)))

    def on(self, base: "Table") -> "Table":
        """This table, with the values of `base` for the keys that it lacks."""
        theirs = {key: base.at(key) for key in base.values if key not in self.values}
        values = {**base.values, **self.values}
        return Table(values, self.path, self.source, {**self.elsewhere, **theirs})

    @property
    def known(self) -> frozenset[str]:
        """All keys that were read or expected."""
        return frozenset(self._read)

    def error(self, key: str | None, why: str) -> BadIntent:
        """An error about one key, or about the whole table (None)."""
        source, path = (self.source, self.path) if key is None else self.at(key)
        return source.error(path, why)

    def done(self) -> None:
        """Raises: BadIntent for a key that was not read."""
        for key in self.values:
            if key not in self._read:
                raise self.error(key, f"unknown key {key!r}{among(key, self._read)}")

    def expect(self, *keys: str) -> None:
        """Mark keys as known that are so alike that one looks like a misspelling of the other."""
        self._read.update(keys)

    def has(self, key: str) -> bool:
        self._note(key)
        return key in self.values

    def _note(self, key: str) -> None:
        """Mark a key as known. If it is absent and a misspelling of it is present, report the
        misspelling: the missing key is only its consequence.

        Raises: BadIntent.
        """
        self._read.add(key)
        if key not in self.values:
            others = [each for each in self.values if each not in self._read]
            for near in difflib.get_close_matches(key, others, n=1, cutoff=LIKE):
                raise self.error(near, f"unknown key {near!r}; did you mean {key!r}?")

    def text(self, key: str, shape: re.Pattern[str], what: str, default: Any = _REQUIRED) -> str:
        """A string that matches all of `shape`; `what` names it in errors."""
        return str(self._checked(key, default, lambda value: _text(value, shape, what)))

    def one_of(self, key: str, choices: Sequence[str], default: Any = _REQUIRED) -> str:
        def read(value: Any) -> Any:
            if value not in choices:
                raise ValueError(f"{_show(value)} is not one of {', '.join(choices)}")
            return value

        return str(self._checked(key, default, read))

    def flag(self, key: str, default: bool) -> bool:
        def read(value: Any) -> bool:
            if not isinstance(value, bool):
                raise ValueError(f"{_show(value)} is neither true nor false")
            return value

        return bool(self._checked(key, default, read))

    def integer(self, key: str, low: int, high: int, default: Any = _REQUIRED) -> int:
        return int(self._checked(key, default, lambda value: _integer(value, low, high)))

    def integers(self, key: str, low: int, high: int, default: Any = _REQUIRED) -> tuple[int, ...]:
        def read(value: Any) -> tuple[int, ...]:
            found = tuple(_integer(each, low, high) for each in _list(value))
            if len(set(found)) != len(found):
                raise ValueError("an entry is listed twice")
            return found

        return tuple(self._checked(key, default, read))

    def texts(
        self, key: str, shape: re.Pattern[str], what: str, default: Any = _REQUIRED
    ) -> tuple[str, ...]:
        def read(value: Any) -> tuple[str, ...]:
            return tuple(_text(each, shape, what) for each in _list(value))

        return tuple(self._checked(key, default, read))

    def fraction(self, key: str, default: Any = _REQUIRED) -> float:
        return float(self._checked(key, default, _fraction))

    def ramp(self, key: str, default: Any = _REQUIRED) -> tuple[float, float]:
        """[begin, certain], both 0..1, begin not above certain."""
        begin, certain = self._checked(key, default, _ramp)
        return begin, certain

    def ramps(self, key: str, default: Any = _REQUIRED) -> tuple[tuple[float, float], ...]:
        return tuple(self._checked(key, default, lambda v: tuple(_ramp(each) for each in _list(v))))

    def size(self, key: str, low: int, high: int, default: Any = _REQUIRED) -> int:
        """A size in bytes, from a number or "256KiB"; units are powers of 1024."""
        return int(self._checked(key, default, lambda value: _size(value, low, high)))

    def sizes(self, key: str, low: int, high: int, default: Any = _REQUIRED) -> tuple[int, int]:
        """[begin, certain] in bytes, begin below certain."""

        def read(value: Any) -> tuple[int, ...]:
            found = tuple(_size(each, low, high) for each in _list(value))
            if len(found) != 2 or found[0] >= found[1]:
                raise ValueError(
                    f"{_show(value)} is not a pair [begin, certain] with begin < certain"
                )
            return found

        begin, certain = self._checked(key, default, read)
        return begin, certain

    def rate(self, key: str, low: int, high: int, default: Any = _REQUIRED) -> int:
        """A rate in bit/s, from "100Gbit"; units are powers of 1000."""

        def read(value: Any) -> int:
            return _integer(bits_per_second(value), low, high)

        return int(self._checked(key, default, read))

    def table(self, key: str) -> "Table":
        """A table inside this one; an empty table if it is absent."""
        value = self.values.get(key, {})
        self._note(key)
        if not isinstance(value, dict):
            raise self.error(key, f"{_show(value)} is not a table")
        source, path = self.at(key)
        return Table(value, path, source)

    def tables(self, key: str) -> Iterator["Table"]:
        """The elements of an array of tables."""
        rows = self.values.get(key, [])
        self._note(key)
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise self.error(key, f"must be an array of tables: write [[{key}]] before each")
        source, path = self.at(key)
        for position, row in enumerate(rows):
            yield Table(row, (*path, position), source)

    def _checked(self, key: str, default: Any, read: Any) -> Any:
        self._note(key)
        if key not in self.values:
            if default is _REQUIRED:
                raise self.error(None, f"the key {key!r} is missing")
            return default
        try:
            return read(self.values[key])
        except ValueError as exc:
            raise self.error(key, str(exc)) from None


def _show(value: Any) -> str:
    try:
        shown = repr(value)
    except (ValueError, RecursionError):  # an integer of 5,000 digits, tables nested too deeply
        return f"this {type(value).__name__}"
    return shown if len(shown) <= SHOWN else shown[:SHOWN] + "..."


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{_show(value)} is not a list")
    return value


def _text(value: Any, shape: re.Pattern[str], what: str) -> str:
    if not isinstance(value, str) or not shape.fullmatch(value):
        raise ValueError(f"{_show(value)} is not a valid {what}")
    return value


def _integer(value: Any, low: int, high: int) -> int:
    if type(value) is not int:  # isinstance would let true pass for 1
        raise ValueError(f"{_show(value)} is not a whole number")
    if not low <= value <= high:
        raise ValueError(f"{value} is outside {low}..{high}")
    return value


def _size(value: Any, low: int, high: int) -> int:
    if isinstance(value, str) and (found := _SIZE.fullmatch(value.strip())):
        value = int(found[1]) * _SIZES[(found[2] or "").upper()]
    if type(value) is not int:
        raise ValueError(f'{_show(value)} is not a size: write 65536 or "64KiB"')
    return _integer(value, low, high)


def _fraction(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value <= 1:  # false for NaN
        raise ValueError(f"{_show(value)} is not a fraction from 0 to 1")
    return float(value)


def _ramp(value: Any) -> tuple[float, float]:
    parts = [_fraction(each) for each in _list(value)]
    if len(parts) != 2 or parts[0] > parts[1]:
        raise ValueError(f"{_show(value)} is not a pair [begin, certain] with begin <= certain")
    return parts[0], parts[1]
