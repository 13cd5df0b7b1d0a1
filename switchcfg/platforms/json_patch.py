"""JSON patches between two documents of tables, keys and fields: RFC 6902 and RFC 7396. Pure.

The patch removes a table instead of leaving it empty: SONiC's patch sorter refuses an empty table.
"""

from collections.abc import Iterator, Mapping
from typing import Any

Document = Mapping[str, Mapping[str, Mapping[str, Any]]]


def patch(before: Document, after: Document) -> list[dict[str, Any]]:
    """The operations of RFC 6902 from `before` to `after`; removals come last."""
    found = list(_difference((), before, after))
    return [op for op in found if op["op"] != "remove"] + [
        op for op in found if op["op"] == "remove"
    ]


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch (RFC 7396) from `before` to `after`, which must not contain null."""
    out: dict[str, Any] = {key: None for key in before.keys() - after.keys()}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            if found := merge_patch(old, value):
                out[key] = found
        elif value != old:
            out[key] = value
    return dict(sorted(out.items()))


def pointer(path: tuple[str, ...]) -> str:
    """The JSON pointer of a path (RFC 6901)."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)


def _difference(
    path: tuple[str, ...], before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    for key in sorted(before.keys() | after.keys()):
        at = pointer((*path, key))
        if key not in before:
            yield {"op": "add", "path": at, "value": after[key]}
        elif key not in after:
            yield {"op": "remove", "path": at}
        elif isinstance(before[key], Mapping) and isinstance(after[key], Mapping):
            yield from _difference((*path, key), before[key], after[key])
        elif before[key] != after[key]:
            yield {"op": "replace", "path": at, "value": after[key]}
