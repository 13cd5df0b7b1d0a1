"""Ranges of port names, such as Ethernet[0-12/4]: to names and back. Pure."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

MAX_PORTS: Final = 1024  # in one range: more than a chassis has
FEW: Final = 4  # lines that are shown one by one
_RANGE: Final = re.compile(r"([^\[\]]*)\[(\d{1,4})-(\d{1,4})(?:/(\d{1,2}))?\]([^\[\]]*)")
_WORD: Final = re.compile(r"[\w/.:-]+")
_FIRST: Final = re.compile(r"[A-Za-z][\w/.:-]*\d(?=\W)")  # a port's name that begins a line


def expand(text: str) -> list[str]:
    """The names of a range: Ethernet0, 4, 8 and 12 for "Ethernet[0-12/4]". A name without
    brackets gives itself.

    Raises: ValueError.
    """
    found = _RANGE.fullmatch(text)
    if not found:
        if "[" in text or "]" in text:
            raise ValueError(f"{text!r}: a range is [FIRST-LAST] or [FIRST-LAST/STEP]")
        return [text]
    first, last, step = int(found[2]), int(found[3]), int(found[4] or 1)
    if first > last or not step:
        raise ValueError(f"{text!r}: the range is empty")
    numbers = range(first, last + 1, step)
    if len(numbers) > MAX_PORTS:
        raise ValueError(f"{text!r}: {len(numbers)} ports, at most {MAX_PORTS}")
    return [f"{found[1]}{number}{found[5]}" for number in numbers]


def compact(names: Sequence[str]) -> list[str]:
    """The inverse of `expand`, in the same order: "Ethernet[0-12/4]", "Ethernet[1-8]/1"."""
    return min((_compact(names, which) for which in (-1, -2)), key=len)


def folded(
    lines: Iterable[str], ports: Collection[str] | None = None, most: int = FEW
) -> list[str]:
    """Lines that differ only by a port, if they are more than `most`, as one line with ranges.
    `ports`: their names; None: only a name at the beginning of a line is a port."""
    known = None if ports is None else frozenset(ports)
    same: dict[str, dict[str, str]] = {}  # line without its port -> port -> line
    for line in lines:
        port = _port(line, known)
        same.setdefault(line.replace(port, "\0", 1) if port else line, {})[port] = line
    out: list[str] = []
    for plain, found in same.items():
        if len(found) > most:
            out.append(plain.replace("\0", ", ".join(compact([*found]))))
        else:
            out += found.values()
    return out


def _port(line: str, known: Collection[str] | None) -> str:
    """The port that a line names; "": none."""
    if known is None:
        first = _FIRST.match(line)
        return first[0].rstrip(":.") if first else ""
    words = (hit[0].rstrip(":.") for hit in _WORD.finditer(line))
    return next((word for word in words if word in known), "")


def _compact(names: Sequence[str], which: int) -> list[str]:
    """Ranges over the last number of each name (`which` -1), or the one before it (-2)."""
    out: list[str] = []
    parts = (_parts(name, which) for name in names)
    for (prefix, suffix), group in groupby(parts, lambda part: (part[0], part[2])):
        for first, last, step in _runs(number for _, number, _ in group):
            if first == last:
                out.append(f"{prefix}{first}{suffix}")
            else:
                by = f"/{step}" if step > 1 else ""
                out.append(f"{prefix}[{first}-{last}{by}]{suffix}")
    return out


def _parts(name: str, which: int) -> tuple[str, str, str]:
    """(prefix, number, suffix); (name, "", "") if there is no such number or `expand` could not
    reproduce it."""
    found = list(re.finditer(r"[0-9]+", name))
    if len(found) < -which or not re.fullmatch(r"0|[1-9]\d{0,3}", found[which][0]):
        return name, "", ""
    return name[: found[which].start()], found[which][0], name[found[which].end() :]


def _runs(numbers: Iterable[str]) -> Iterator[tuple[str, str, int]]:
    """(first, last, step) of each run with an even, positive step; ("", "", 0) for no number."""
    run: list[int] = []
    for text in numbers:
        if not text:
            yield "", "", 0
            continue
        number = int(text)
        step = run[1] - run[0] if len(run) > 1 else number - run[0] if run else 0
        if run and (number - run[-1] != step or not 0 < step < 100 or len(run) >= MAX_PORTS):
            yield str(run[0]), str(run[-1]), run[1] - run[0] if len(run) > 1 else 0
            run = []
        run.append(number)
    if run:
        yield str(run[0]), str(run[-1]), run[1] - run[0] if len(run) > 1 else 0
