"""An account of a configuration: each line near QoS is read, of no matter, or unread. Pure.

A parser hands every line to `account`. A line that nothing consumes and no list names becomes a
value of the kind UNREAD, which `refusals` turns into a refusal near what a plan touches. So a
reader cannot skip a line: what it does not know is there, and counted.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from switchcfg.errors import BadState
from switchcfg.plan.masking import masked
from switchcfg.plan.state import Place, State

UNREAD: Final = "unread"  # kind of values: name = owner, field = line, value = why
SWITCH: Final = ""  # owner of what is set for the whole switch
NOT_UNDERSTOOD: Final = "not understood"
MOST: Final = 1 << 18  # values of a device; a chassis has some ten thousand
SHOWN: Final = 160  # characters of a line in an error
Line = TypeVar("Line")


@dataclass(frozen=True, slots=True)
class KnownLine:
    """Lines that a reader knows without taking a value from them."""

    shape: re.Pattern[str]  # of the whole line, with its sections
    why: str  # of no matter, or refused


class Reading(dict[Place, str]):
    """A state as it was read from `lines` lines near QoS, of which `unread` are UNREAD. `text`: the
    whole configuration, for `switchcfg.model`; it is never stored or printed. None: unknown."""

    def __init__(
        self, values: Mapping[Place, str], lines: int = 0, unread: int = 0, text: str | None = None
    ) -> None:
        super().__init__(values)
        self.lines, self.unread, self.text = lines, unread, text

    @classmethod
    def of(cls, read: State, values: State) -> State:
        """Other values from the same lines as a state."""
        if not isinstance(read, Reading):
            return values
        return cls(values, read.lines, read.unread, read.text)

    @classmethod
    def from_text(cls, values: State, text: str) -> "Reading":
        """The values that were read from a text."""
        counted = (values.lines, values.unread) if isinstance(values, Reading) else (0, 0)
        return cls(values, *counted, text)


@dataclass(frozen=True, slots=True)
class Item:
    """One line of a configuration near QoS."""

    owners: tuple[str, ...]  # ports, profiles ... that it belongs to; SWITCH: the whole switch
    text: str  # with all its sections
    shown: str  # without the section of its owner


def account(
    lines: Iterable[tuple[Item, Line]],
    consume: Callable[[Line, dict[Place, str]], bool],
    *,
    idle: Sequence[KnownLine] = (),
    refused: Sequence[KnownLine] = (),
) -> Reading:
    """All values of the lines.

    A line in `refused` is UNREAD for the reason there. Of another, `consume` adds the values and
    returns True; or it returns False, and the line is of no matter (`idle`), or not understood.

    Raises: BadState for more than MOST values.
    """
    out: dict[Place, str] = {}
    count = unread = 0
    for item, line in lines:
        count += 1
        why = reason(refused, item.text)
        if not why and (consume(line, out) or reason(idle, item.text)):
            continue
        unread += 1
        if len(out) + len(item.owners) > MOST:
            raise BadState(f"configuration of more than {MOST} values")
        for owner in item.owners:
            out[Place(UNREAD, owner, masked(item.shown))] = why or NOT_UNDERSTOOD
    return Reading(out, count, unread)


def reason(known: Sequence[KnownLine], text: str) -> str:
    """Why a line is known; "": it is not."""
    return next((each.why for each in known if each.shape.fullmatch(text)), "")


def refusals(device: str, present: State, near: Collection[str]) -> Iterator[str]:
    """Problems of unread lines whose owners are near what a plan touches."""
    for (kind, owner, line), why in sorted(present.items()):
        if kind == UNREAD and owner in near:
            shown = line if len(line) <= SHOWN else f"{line[:SHOWN]}..."
            yield f'unread: {owner or device}: "{shown}": {why}'


def counts(present: State) -> tuple[int, int]:
    """(lines near QoS that were read or are of no matter, all lines near QoS); (0, 0): unknown."""
    if not isinstance(present, Reading):
        return 0, 0
    return present.lines - present.unread, present.lines


def reached(start: Iterable[str], refers: Mapping[str, Collection[str]]) -> set[str]:
    """The owners that can be reached from `start`."""
    found: set[str] = set()
    left = [*start]
    while left:
        owner = left.pop()
        if owner not in found:
            found.add(owner)
            left += refers.get(owner, ())
    return found
