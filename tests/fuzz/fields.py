"""Every field of a valid message, made wrong: at its bounds, beyond them, of other types, cut.

A case is (what was done, bytes). Nothing here knows which of them a parser must refuse.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgpack

from dlcpd.contract.toml_text import MAX_BITS

Case = tuple[str, bytes]
EXTENSIONS: Final = (b"\0", b"\xff", b" ", bytes(64), b"]" * 3)
MAX_CUTS: Final = 512  # places at which a long input is cut, evenly; a short one at each byte
# One of each type of MessagePack, JSON and TOML, at limits where a type has some.
WRONG: Final[tuple[Any, ...]] = (
    None, True, False, -1, 0, 1, 255, 256, (1 << 16) - 1, 1 << 16, (1 << 32) - 1, 1 << 32,
    (1 << 63) - 1, (1 << 64) - 1, -(1 << 63), 0.5, -0.0, 1e300, float("nan"), float("inf"),
    "", "1", "x" * 2000, "\0", "\N{GRINNING FACE}", b"", b"\xff", [], [[]], [None], [1, "a"],
    [[1, 2]], {}, {"a": {}}, ["x"] * 300,
)  # fmt: skip


def cuts(data: bytes) -> Iterator[Case]:
    """Ended early at each byte."""
    step = max(len(data) // MAX_CUTS, 1)
    for size in range(0, len(data), step):
        yield f"cut to {size}", data[:size]


def extensions(data: bytes) -> Iterator[Case]:
    """Something after the end, or all of it again."""
    for more in (*EXTENSIONS, data):
        yield f"and {len(more)} B more", data + more


def numbers(data: bytes, layout: Mapping[str, tuple[int, int]]) -> Iterator[Case]:
    """Of fixed places: name -> (offset, size), little-endian."""
    for name, (offset, size) in layout.items():
        old = int.from_bytes(data[offset : offset + size], "little")
        most = (1 << 8 * size) - 1
        bits = (old ^ 1 << bit for bit in range(8 * size))
        for new in sorted({0, 1, most, most - 1, most >> 1, (old + 1) & most, *bits}):
            changed = data[:offset] + new.to_bytes(size, "little") + data[offset + size :]
            yield f"{name} = {new}", changed


def values(tree: Any) -> Iterator[tuple[str, Any]]:
    """A tree of lists and maps with one leaf or branch replaced, removed, doubled or added to."""
    for wrong in WRONG:
        yield f"{wrong!r:.20}", wrong
    children = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, child in list(children):
        for what, other in values(child) if isinstance(child, dict | list) else _leaves(child):
            yield f"{key}: {what}", _with(tree, key, other)
        yield f"no {key}", _without(tree, key)
    if isinstance(tree, dict):
        yield "one key more", {**tree, "another": 1}
        yield "a key that is no text", {**tree, 7: 1}
    else:
        yield "one more", [*tree, tree[-1] if tree else 1]
        yield "many more", [*tree, *(tree[-1:] or [1]) * 5000]


def _leaves(value: Any) -> Iterator[tuple[str, Any]]:
    for wrong in WRONG:
        yield f"{wrong!r:.20}", wrong
    if type(value) is int:
        yield from ((f"{new}", new) for new in (value - 1, value + 1, -value))
        yield from ((f"bit {bit}", value ^ 1 << bit) for bit in range(MAX_BITS))
    if isinstance(value, str):
        yield from (("longer", value + "x"), ("shorter", value[:-1]), ("a NUL", value + "\0"))


def _with(tree: Any, key: Any, value: Any) -> Any:
    if isinstance(tree, dict):
        return {**tree, key: value}
    return [*tree[:key], value, *tree[key + 1 :]]


def _without(tree: Any, key: Any) -> Any:
    if isinstance(tree, dict):
        return {name: value for name, value in tree.items() if name != key}
    return [*tree[:key], *tree[key + 1 :]]


def in_msgpack(data: bytes) -> Iterator[Case]:
    """Of a frame."""
    for what, tree in values(msgpack.unpackb(data, strict_map_key=False)):
        try:
            yield what, msgpack.packb(tree)
        except OverflowError:
            continue  # no integer that MessagePack has


def in_json(data: bytes) -> Iterator[Case]:
    """Of an object."""
    for what, tree in values(json.loads(data)):
        try:
            yield what, json.dumps(tree).encode()
        except TypeError:
            continue  # bytes


def in_signed(data: bytes) -> Iterator[Case]:
    """Of an object behind its signature, which then belongs to another object."""
    start = data.index(b"{")
    for what, changed in in_json(data[start:]):
        yield what, data[:start] + changed


def in_toml(data: bytes) -> Iterator[Case]:
    """Of a file: its values, and integers and nesting that Python itself cannot bear."""
    document = tomllib.loads(data.decode())
    for what, tree in values(document):
        if isinstance(tree, dict):
            yield what, "".join(f"{_key(k)} = {_toml(v)}\n" for k, v in tree.items()).encode()
    for what, leaf in (
        ("5,000 digits", "9" * 5000),
        ("20,000 bits", "0x" + "f" * 5000),
        ("deep", "[" * 5000),
        ("a date", "1979-05-27"),
        ("deep tables", "{a" + ".a" * 2000 + " = 1}"),
    ):
        for path in _leaf_paths(document):
            yield f"{path}: {what}", f"{_key(path[0])} = {_nested(path[1:], leaf)}\n".encode()


def _leaf_paths(tree: Any, *path: str) -> Iterator[tuple[str, ...]]:
    for key, child in tree.items():
        yield (*path, key)
        if isinstance(child, dict):
            yield from _leaf_paths(child, *path, key)


def _nested(path: tuple[str, ...], leaf: str) -> str:
    for key in reversed(path):
        leaf = f"{{ {_key(key)} = {leaf} }}"
    return leaf


def _key(name: Any) -> str:
    return json.dumps(str(name))


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(k)} = {_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, bool | str):
        return json.dumps(value)
    return str(value)  # None and bytes are no TOML, which is a case as well
