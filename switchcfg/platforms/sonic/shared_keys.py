"""Keys of CONFIG_DB for several ports, such as `QUEUE|Ethernet0,Ethernet4|3`. Pure.

Device templates of sonic-buildimage write them, and orchagent takes them apart (qosorch.cpp and
bufferorch.cpp of sonic-swss, `tokenize(key, ',')`). A state has a row per port, and a value of the
kind SHARED for each such key. A plan that changes a row removes this value, and with it the key.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from switchcfg.errors import BadState
from switchcfg.intent.intent import Intent
from switchcfg.plan.account import MOST
from switchcfg.plan.state import Place, State
from switchcfg.platforms.platform import is_ours
from switchcfg.platforms.sonic.lossless import numbered

SHARED: Final = "key of several ports"  # name: TABLE|KEY
TABLES: Final = ("QUEUE", "PORT_QOS_MAP", "BUFFER_QUEUE", "BUFFER_PG")
Rows = Mapping[str, Any]


def expand(table: str, rows: Rows) -> tuple[dict[str, Any], list[str]]:
    """(a row per port, the keys of several ports as TABLE|KEY). A key of several ports that
    overlaps another key stays as it is.

    Raises: BadState for more than MOST values.
    """
    uses = Counter(use for key in rows for use in _uses(key))
    out: dict[str, Any] = {}
    shared: list[str] = []
    values = 0
    for key, fields in rows.items():
        alone = all(uses[use] == 1 for use in _uses(key))
        if "," not in key or "" in key.split("|")[0].split(",") or not alone:
            out[key] = fields
        else:
            shared.append(f"{table}|{key}")
            for member in _members(key):
                values += len(fields) if isinstance(fields, dict) else 1
                if values > MOST:
                    raise BadState(f"{table}: keys of more than {MOST} values")
                out[member] = fields
    return out, shared


def _members(key: str) -> Iterator[str]:
    """The keys of single ports."""
    ports, bar, queues = key.partition("|")
    return (f"{port}{bar}{queues}" for port in ports.split(","))


def _uses(key: str) -> Iterator[tuple[str, object]]:
    """(port, queue) of a key; a text that is no number or range counts as one queue."""
    for member in _members(key):
        port, _, queues = member.partition("|")
        yield from ((port, each) for each in numbered(port, member) or (queues,))


def rows_of(name: str) -> Iterator[tuple[str, str]]:
    """(table, key) of the rows that a value of SHARED stands for."""
    table, _, key = name.partition("|")
    return ((table, member) for member in _members(key))


def join(out: dict[str, dict[str, dict[str, Any]]], names: Iterable[str]) -> None:
    """Put the rows of each key back together.

    Raises: BadState if rows of a key differ.
    """
    for name in names:
        table, _, key = name.partition("|")
        rows = [out.get(table, {}).pop(member, None) for member in _members(key)]
        if rows[0] is None or any(row != rows[0] for row in rows):
            raise BadState(f"{name}: its ports have different values")
        out[table][key] = rows[0]


def without(state: State, names: Collection[str], *, rows: bool) -> dict[Place, str]:
    """The state without these keys; `rows`: and without their rows."""
    gone = {row for name in names for row in rows_of(name)} if rows else set()
    return {
        place: value
        for place, value in state.items()
        if (place.kind, place.name) not in gone
        and not (place.kind == SHARED and place.name in names)
    }


def touched(
    intent: Intent, present: State, wanted: State, gives_way: Collection[Place]
) -> frozenset[Place]:
    """The keys of several ports of which a plan changes a row."""
    changed = {(place.kind, place.name) for place in gives_way}
    changed |= {(p.kind, p.name) for p, value in wanted.items() if present.get(p) != value}
    changed |= {
        (place.kind, place.name)
        for place, value in present.items()
        if place.kind in TABLES and is_ours(intent, value) and place not in wanted
    }
    keys = (place for place in present if place.kind == SHARED)
    return frozenset(key for key in keys if changed.intersection(rows_of(key.name)))
