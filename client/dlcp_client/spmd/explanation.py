"""`explain`: how tensors are divided and why, and each collective with its line and cause."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from math import prod
from statistics import fmean
from typing import Any, Final, TypeAlias

from torch import fx

from dlcpd.contract.errors import BadConfig

from .borders import COLLECTIVE
from .capture import Kind, Value
from .emission import Collective
from .meshes import Mesh
from .module import Partitioned
from .partitioner import Partition, held_as, left_as
from .sharding import Sharding, text_of
from .timing import Times

FORMS: Final = ("text", "json", "html")
DECIMALS: Final = re.compile(r"\d+\.\d+")
Tables: TypeAlias = Mapping[str, Sequence[Sequence[str]]]  # each has its columns first


def explain(of: Partition | Partitioned, form: str = "text") -> str:
    """Tables: the sums per axis, memory, the inputs, the collectives, and the operations without a
    rule, if there are any. A rank sends these bytes at most in a forward and a backward pass, and
    has these bytes of memory at most.

    `of`: a plan, or a model on this rank, whose passes in `measured` have times of its collectives;
    `form`: "text", "json" (objects by column) or "html" (a page).

    Raises: BadConfig for another form.
    """
    if isinstance(of, Partitioned):
        partition, times = of._program.partition, of._program.times  # noqa: SLF001  # one package
    else:
        partition, times = of, None
    if form not in FORMS:
        raise BadConfig(f"explain has no form {form!r}: use one of {', '.join(FORMS)}")
    tables = {
        "totals": _totals(partition),
        "memory": _memory(partition, times),
        "inputs": _inputs(partition),
        "collectives": _collectives(partition, times),
        "without a rule": _without_rule(partition),
    }
    mesh = partition.plan.mesh
    if form == "json":
        return _json(dict(mesh.sizes), tables)
    if form == "html":
        return _page(f"mesh {mesh}", tables)
    if len(tables["without a rule"]) == 1:
        del tables["without a rule"]
    return "\n\n".join([f"mesh {mesh}", *map(_table, tables.values())]) + "\n"


def _json(mesh: Mapping[str, int], tables: Tables) -> str:
    """Numbers are numbers."""
    found: dict[str, Any] = {"mesh": mesh}
    for name, (columns, *rows) in tables.items():
        found[name] = [dict(zip(columns, map(_number, row), strict=True)) for row in rows]
    return json.dumps(found, indent=2)


def _number(cell: str) -> float | str:
    digits = cell.replace(",", "")
    if digits.isdecimal():
        return int(digits)
    return float(digits) if DECIMALS.fullmatch(digits) else cell


def _page(title: str, tables: Tables) -> str:
    """Lines of the model are text: nothing in them becomes markup."""
    parts = [f"<h1>{escape(title)}</h1>"]
    for name, (columns, *rows) in tables.items():
        head = "".join(f"<th>{escape(cell)}</th>" for cell in columns)
        body = "".join(
            f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>\n" for row in rows
        )
        parts.append(f"<h2>{name}</h2>\n<table>\n<tr>{head}</tr>\n{body}</table>")
    style = "td, th { padding: 0 1em; text-align: left; font-family: monospace }"
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{style}</style>'
    body = "\n".join(parts)
    return f"<!DOCTYPE html>\n<html><head>{head}</head>\n<body>\n{body}\n</body></html>\n"


def _totals(partition: Partition) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = [("axis", "collective", "number", "bytes")]
    numbers: Counter[tuple[str, str]] = Counter()
    sent: Counter[tuple[str, str]] = Counter()
    for one in partition.collectives:
        numbers[one.axis, one.kind] += 1
        sent[one.axis, one.kind] += round(one.sent)
    for axis, kind in sorted(numbers):
        rows.append((axis, kind, str(numbers[axis, kind]), f"{sent[axis, kind]:,}"))
    return rows


def _inputs(partition: Partition) -> list[Sequence[str]]:
    """Parameters, buffers and arguments. An argument that no annotation names is held whole."""
    rows: list[Sequence[str]] = [("input", "shape", "held as", "decided by")]
    for kind, name, value in partition.plan.captured.inputs:
        if value is not None and kind is not Kind.TANGENT:
            sharding = held_as(partition.plan, kind, value)
            title = name if kind in (Kind.PARAMETER, Kind.BUFFER) else f"{kind.value} {name}"
            why = _reasons(partition, value) if any(sharding) else ""
            rows.append((title, _shape(value), text_of(sharding), why))
    return rows


def _reasons(partition: Partition, value: Value) -> str:
    plan, found = partition.plan, []
    for dim, splits in enumerate(plan.shardings[value]):
        reason = plan.reasons.get((value, dim))
        if splits and reason is not None:
            through = f" through {plan.captured.line_of(reason.through)}" if reason.through else ""
            found.append(f"{reason.source}{through}")
    return "; ".join(dict.fromkeys(found))


def _memory(partition: Partition, times: Times | None) -> list[Sequence[str]]:
    """Of shards with their padding."""
    plan, captured = partition.plan, partition.plan.captured
    found = dict.fromkeys(("parameters", "buffers", "gradients"), 0)
    stored = {Kind.PARAMETER: "parameters", Kind.BUFFER: "buffers"}
    for kind, _, value in captured.inputs:
        if kind in stored and value is not None:
            found[stored[kind]] += _bytes(plan.mesh, value, held_as(plan, kind, value))
    for kind, name, value in captured.outputs:
        if kind is Kind.GRADIENT and value is not None:
            found["gradients"] += _bytes(plan.mesh, value, left_as(plan, kind, name, value))
    if times is not None and times.saved:
        found["saved by a forward pass"] = times.saved
    return [("memory of a rank", "bytes"), *((name, f"{size:,}") for name, size in found.items())]


def _bytes(mesh: Mesh, value: Value, sharding: Sharding) -> int:
    return prod(mesh.local_shape(value.shape, sharding)) * value.tensor.element_size()


def _collectives(partition: Partition, times: Times | None) -> list[Sequence[str]]:
    """In the order of the program. Equal ones of repeated layers share a row. Times are those of
    one, in milliseconds."""
    rows: dict[tuple[str, ...], list[Collective]] = {}
    for one in partition.collectives:
        rows.setdefault(_row(partition, one), []).append(one)
    columns = ["predicted (ms)"]
    cells = [
        [_milliseconds(partition.costs.of(ones[0].sent, ones[0].axis))] for ones in rows.values()
    ]
    if times is not None and times.of:
        columns.append("measured (ms)")
        for cell, ones in zip(cells, rows.values(), strict=True):
            taken = [seconds for one in ones for seconds in times.of[one]]
            cell.append(_milliseconds(fmean(taken)) if taken else "")
    found = [
        (str(len(ones)), *row[:3], *cell, *row[3:])
        for (row, ones), cell in zip(rows.items(), cells, strict=True)
    ]
    head = ("times", "collective", "axis", "bytes", *columns, "tensor", "because", "line")
    return [head, *found]


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"


def _without_rule(partition: Partition) -> list[Sequence[str]]:
    """Every rank computes the whole of these."""
    plan = partition.plan
    nodes = [node for node, rule in plan.rules.items() if rule.is_default]
    found = Counter((str(node.target), plan.captured.line_of(node)) for node in nodes)
    rows = [(str(times), *row) for row, times in found.items()]
    return [("times", "operation", "line"), *rows]


def _row(partition: Partition, one: Collective) -> tuple[str, ...]:
    """One collective: the call that needs it, and the user's line of that call, or, for a result
    or a gradient, of the call that made it, or the name of the input that it is."""
    captured = partition.plan.captured
    is_output = one.caller.op == "output"
    line = captured.line_of(one.value.node if is_output else one.caller)
    if is_output and one.value.node.op == "placeholder":
        line = next(f"{p.kind.value} {p.name}" for p in captured.inputs if p.value == one.value)
    return one.kind, one.axis, f"{round(one.sent):,}", _shape(one.value), _because(one), line


def _because(one: Collective) -> str:
    if one.caller.op == "output":
        return "it is a result or gradient"
    if one.caller.target == COLLECTIVE:
        return "a manual region calls it"
    return f"{_name(one.caller)} needs it"


def _name(node: fx.Node) -> str:
    return str(node.target).split(".")[1]  # of aten.add.Tensor


def _shape(value: Value) -> str:
    return " x ".join(map(str, value.shape)) or "a number"


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their longest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
