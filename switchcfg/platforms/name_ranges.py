"""Expands lists and ranges of names, as devices print them. Pure.

EOS: `0 1 2 3`; NVUE: `0-7,12`, `swp1-2,32`, `swp1-swp4,swp6`, `swp1s0-3`; NX-OS: `8-10,12`.
"""

import re
from collections.abc import Iterator
from typing import Final

from switchcfg.errors import BadState

MOST: Final = 4096  # names in one list: more than a switch has ports
_RANGE: Final = re.compile(r"(\d{1,9})-(\d{1,9})")
_SPELLED: Final = re.compile(r"(\D*)(\d{1,9})-(\D*)(\d{1,9})")  # swp1-swp4
_NUMBERS: Final = re.compile(r"(.*?)(\d+(?:-\d+)?)")


def members(text: str) -> list[str]:
    """The names, one by one. A number alone takes the stem of the name before it.

    Raises: BadState for more than MOST names.
    """
    found: list[str] = []
    stem = ""
    for word in re.split(r"[ ,]+", text.strip(" ,")):
        part = stem + word if word[:1].isdigit() else word
        hit = _NUMBERS.fullmatch(part)
        stem = hit[1] if hit else ""
        found += _each(part, MOST - len(found))
    return found


def _each(part: str, most: int) -> Iterator[str]:
    spelled = _SPELLED.fullmatch(part)
    if spelled and spelled[1] == spelled[3]:
        part = f"{spelled[1]}{spelled[2]}-{spelled[4]}"
    out = [part]
    while hit := _RANGE.search(out[0]):
        numbers = range(int(hit[1]), int(hit[2]) + 1)
        if not 0 < len(numbers) * len(out) <= most:
            raise BadState(f"{part[:40]!r} is not a range of at most {MOST} names")
        out = [_RANGE.sub(str(each), name, count=1) for name in out for each in numbers]
    yield from out
