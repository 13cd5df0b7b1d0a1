"""Valid IPC messages, and every way in which one field of them can be wrong."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgpack
from hypothesis import strategies as st

from dlcpd.contract.forms import MAX_TEXT
from dlcpd.contract.frames import FORMS
from dlcpd.contract.messages import ByteRange, Counts, LayerRow, Message, PeerRow
from dlcpd.contract.printable import harmless

Rule = Mapping[str, Any]

_ROWS: dict[type, Any] = {
    int: 7,
    Counts: [7, 4096],
    ByteRange: [0, 4096],
    LayerRow: [0, 4, 10_000],
    PeerRow: [1, "host-b", "tcp://192.0.2.2:7700", "k" * 40],
}


def texts(size: int) -> st.SearchStrategy[str]:
    """Texts without control characters, which parsers leave as they are."""
    return st.text(max_size=size).map(lambda text: harmless(text)[:size])


_CELLS: dict[type, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**63), 2**63 - 1),
    str: texts(20),
}


def rules(kind: type[Message]) -> dict[str, Rule]:
    """The rule of each field of a message."""
    return {name: rule_of(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}


def rule_of(hint: Any) -> Rule:
    """An annotation as type, bounds (of a length, too) and choices."""
    if get_origin(hint) is Literal:
        return {"type": str, "choices": get_args(hint)}
    if get_origin(hint) is not Annotated:
        return {"type": hint}
    base, meta = get_args(hint)
    rule = {"low": meta.ge, "high": meta.max_length if meta.le is None else meta.le}
    if get_origin(base) is list:
        return {"type": list, "of": get_args(base)[0], **rule}
    return {"type": base, **rule}


def packet(number: int, values: Iterable[Any]) -> bytes:
    """Of any kind and values, by another implementation of msgpack."""
    packed: bytes = msgpack.packb([number, *values])
    return packed


def example(kind: type[Message]) -> dict[str, Any]:
    """Valid fields of one message of that kind, each at a limit of its rule."""
    return {name: good_values(rule)[0] for name, rule in rules(kind).items()}


def good_values(rule: Rule) -> list[Any]:
    """The limits of what a field may hold."""
    wanted = rule["type"]
    if wanted in (int, float):
        limits = [wanted(rule["high"]), wanted(rule["low"])]
        return limits if wanted is int else [*limits, math.ceil(rule["low"])]
    if wanted is bool:
        return [True, False]
    if wanted is bytes:
        return [b"{}", b""]
    if wanted is list:
        row = _ROWS[rule["of"]]
        return [[row] * rule["high"], [row], []]
    return list(rule["choices"]) if "choices" in rule else ["x" * rule["high"], ""]


def bad_values(rule: Rule) -> Iterator[tuple[str, Any]]:
    """(name of the corruption, value) for one field."""
    wanted = rule["type"]
    value: Any
    for value in (None, True, 1, 0.5, "1", b"1", [], {}):
        if type(value) is not wanted and not (wanted is float and value == 1 and value is not True):
            yield f"is {value!r}", value
    if wanted is int:
        yield from (("low - 1", rule["low"] - 1), ("high + 1", rule["high"] + 1))
    if wanted is float:
        yield "below low", math.nextafter(rule["low"], -math.inf)
        yield "above high", math.nextafter(rule["high"], math.inf)
        yield "low - 1", math.floor(rule["low"]) - 1
        if rule["high"] < 1 << 63:  # an integer of msgpack
            yield "high + 1", math.floor(rule["high"]) + 1
        yield from (("nan", math.nan), ("inf", math.inf), ("-inf", -math.inf))
    if wanted is str and "choices" not in rule:
        yield "too long", "x" * (rule["high"] + 1)
    if "choices" in rule:
        yield from (("empty", ""), ("unknown", "x" * MAX_TEXT), ("too long", "x" * (MAX_TEXT + 1)))
    if wanted is list:
        yield from _bad_lists(rule)


def _bad_lists(rule: Rule) -> Iterator[tuple[str, Any]]:
    good = _ROWS[rule["of"]]
    yield "too many", [good] * (rule["high"] + 1)
    if rule["of"] is int:
        for wrong in (None, True, 0.5, "1", [1]):
            yield f"holds {wrong!r}", [good, wrong]
    else:
        yield from _bad_rows(good)


def _bad_rows(row: list[Any]) -> Iterator[tuple[str, Any]]:
    wrong: Any
    yield "a row is a number", [1]
    yield "a row is short", [row, row[:-1]]
    yield "a row is long", [row, [*row, 1]]
    for column, cell in enumerate(row):
        for wrong in (None, True, 0.5, b"1", [], "1" if isinstance(cell, int) else 1):
            yield f"cell {column} is {wrong!r}", [row, [*row[:column], wrong, *row[column + 1 :]]]
        if isinstance(cell, str):
            long = [*row[:column], "x" * (MAX_TEXT + 1), *row[column + 1 :]]
            yield f"cell {column} is too long", [long]


def _items(kind: Any) -> st.SearchStrategy[Any]:
    """What a list of `kind` holds."""
    if kind is int:
        return _CELLS[int]
    cells = st.tuples(*(_CELLS[cell] for cell in get_type_hints(kind).values()))
    return cells.map(lambda row: kind(*row))


def values(rule: Rule) -> st.SearchStrategy[Any]:
    """Any value that a field may hold."""
    wanted = rule["type"]
    if wanted is int:
        return st.integers(rule["low"], rule["high"])
    if wanted is float:
        return st.floats(rule["low"], rule["high"])
    if wanted is bool:
        return st.booleans()
    if wanted is bytes:
        return st.binary(max_size=20)
    if wanted is list:
        return st.lists(_items(rule["of"]), max_size=3)
    if "choices" in rule:
        return st.sampled_from(rule["choices"])
    return texts(min(rule["high"], 20))


def messages() -> st.SearchStrategy[Message]:
    """Any valid message."""
    return st.sampled_from(list(FORMS)).flatmap(_messages_of)


def _messages_of(kind: type[Message]) -> st.SearchStrategy[Message]:
    return st.builds(kind, **{name: values(rule) for name, rule in rules(kind).items()})
