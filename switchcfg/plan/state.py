"""The state of a device as a flat map, and the difference of two states. Pure.

Every platform's configuration becomes `Place -> value`: text exactly as the device takes it, with
one spelling per value. A plan is the entries that differ, so one function serves all platforms.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Place(NamedTuple):
    """The position of one value in a configuration."""

    kind: str  # of the object: a table, a section
    name: str  # of the object
    field: str  # "" = the object itself, where it can exist without a field

    def __str__(self) -> str:
        return " ".join(filter(None, self))


State = Mapping[Place, str]
Owns = Callable[[Place, str], bool]


@dataclass(frozen=True, slots=True)
class Change:
    """One value that changes. None = absent."""

    place: Place
    before: str | None
    after: str | None

    @property
    def sign(self) -> str:
        """+ for added, - for removed, ~ for changed."""
        return "+" if self.before is None else "-" if self.after is None else "~"

    def reverse(self) -> "Change":
        """The change that undoes this one."""
        return Change(self.place, self.after, self.before)


def difference(present: State, desired: State, owns: Owns) -> tuple[Change, ...]:
    """The changes from `present` to `desired`, in the order of places.

    A value that `desired` lacks is removed if `owns(place, value)`, and left alone otherwise.
    """
    ours = {place for place, value in present.items() if owns(place, value)}
    return tuple(
        Change(place, present.get(place), desired.get(place))
        for place in sorted(ours | desired.keys())
        if present.get(place) != desired.get(place)
    )


def after(present: State, changes: Iterable[Change]) -> dict[Place, str]:
    """`present` with the changes applied.

    Raises: ValueError if the `before` of a change is not the present value.
    """
    out = dict(present)
    for change in changes:
        if out.get(change.place) != change.before:
            raise ValueError(f"{change.place} is {out.get(change.place)}, not {change.before}")
        if change.after is None:
            del out[change.place]
        else:
            out[change.place] = change.after
    return out


def fingerprint(state: State) -> str:
    """SHA-256 of a state: equal if and only if all values are."""
    rows = sorted([*place, value] for place, value in state.items())
    return hashlib.sha256(json.dumps(rows, ensure_ascii=False).encode()).hexdigest()


def objects(state: State) -> Iterator[tuple[str, str, dict[str, str]]]:
    """(kind, name, fields) of each object, in the order of places."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for place in sorted(state):
        found.setdefault((place.kind, place.name), {})[place.field] = state[place]
    for (kind, name), fields in found.items():
        yield kind, name, fields


def tables(state: State) -> dict[str, dict[str, dict[str, str]]]:
    """Kind -> name -> fields, in the order of places."""
    out: dict[str, dict[str, dict[str, str]]] = {}
    for kind, name, fields in objects(state):
        out.setdefault(kind, {})[name] = fields
    return out


def natural(text: str) -> tuple[tuple[int, str], ...]:
    """Sort key for natural order: Ethernet2 before Ethernet10."""
    return tuple(
        (int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text)
    )
