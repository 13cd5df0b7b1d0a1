"""Operations that move rows along a dimension: slice, pad, roll, flip, unfold.

Where the dimension is divided, a rank needs rows of its neighbours.
"""

import sys
from dataclasses import replace
from typing import Final

import torch

from dlcp_client.spmd.interpolation import ADD, REPEAT
from dlcp_client.spmd.windows import Window

from .call import Call
from .rule import ONE, Dim, Dims, Edit, Halo, Rule, Rules, named, rule

aten = torch.ops.aten
READS: Final = frozenset({0})
Moves = dict[int, Halo]  # by dimension


def _moved(call: Call, moves: Moves, *, linear: bool = True) -> Rule:
    """A factor per dimension; those of `moves` have halos. `Window.anchor` has their size."""
    given, made = call.first.shape, call.result.shape
    dims: list[Dim] = []
    sizes, halos = {}, {}
    for at, (old, new) in enumerate(zip(given, made, strict=False)):
        large = old > 1 and new > 1 and (at in moves or old == new)
        dims.append((f"d{at}",) if large else ())
        if large:
            sizes[f"d{at}"] = new
            if at in moves:
                halos[f"d{at}"] = moves[at]
                sizes[f"d{at}"] = moves[at].window.anchor
    kept: Dims = tuple(dims)
    results = [kept + ((),) * (len(made) - len(given))]  # unfold has one more
    how = ONE if linear else ()
    return rule([kept], results, sizes, linear=how, passes=True, halos=halos)


def _start(call: Call, rows: int) -> int:
    start = call.option("start") or 0
    return min(max(start + rows if start < 0 else start, 0), rows)


def slice_rows(call: Call) -> Rule:
    """Some rows of a dimension."""
    at = call.dim("dim", call.first.dim())
    rows, step = call.first.shape[at], call.option("step")
    window = Window(rows, step, _start(call, rows), 1, call.result.shape[at])
    edits = Edit(2, None, 0), Edit(3, None, sys.maxsize)
    return _moved(call, {at: Halo(window, reads=READS, edits=edits)})


def slice_backward(call: Call) -> Rule:
    """Zeros, with the gradient in some rows of a dimension."""
    at = call.dim("dim", call.result.dim())
    rows, step = call.result.shape[at], call.option("step")
    window = Window(rows, step, _start(call, rows), 1, call.first.shape[at])
    edits = Edit(3, None, 0), Edit(4, None, sys.maxsize)
    return replace(_moved(call, {at: Halo(window, adds=READS, edits=edits)}), shapes={1: 0})


def pad(call: Call) -> Rule:
    """The last dimensions come first in the argument, two numbers each."""
    last, pads, value = call.first.dim() - 1, call.option("pad"), call.option("value") or 0
    moves: Moves = {}
    for index in range(0, len(pads), 2):
        at = last - index // 2
        if pads[index] or pads[index + 1]:
            window = Window(call.first.shape[at], 1, -pads[index], 1, call.result.shape[at])
            edits = Edit(1, index, 0), Edit(1, index + 1, 0)
            moves[at] = Halo(window, reads=READS, fill=value, edits=edits)
    return _moved(call, moves, linear=not value)


def roll(call: Call) -> Rule:
    """Rows go round. Without dimensions, those of the flat tensor do: it stays whole."""
    dims, rank = call.option("dims"), call.first.dim()
    if not dims or not rank:
        return rule([((),) * rank], [((),) * rank], {}, linear=ONE)
    moves: Moves = {}
    for index, (dim, shift) in enumerate(zip(dims, call.option("shifts"), strict=True)):
        at, edit = dim % rank, Edit(1, index, 0)
        rows = call.first.shape[at]
        before = moves.get(at, Halo(Window(rows, 1, 0, 1, rows, True), reads=READS))
        start = (before.window.start - shift) % max(rows, 1)
        edits = (*before.edits, edit)
        moves[at] = replace(before, window=before.window._replace(start=start), edits=edits)
    return _moved(call, moves)


def flip(call: Call) -> Rule:
    """Rows in the opposite order: a window is flipped after it has come."""
    moves: Moves = {}
    for dim in call.option("dims"):
        at = dim % max(call.first.dim(), 1)
        if call.first.dim():
            rows = call.first.shape[at]
            moves[at] = Halo(Window(rows, -1, rows - 1, 1, rows), reads=READS)
    return _moved(call, moves)


def unfold(call: Call) -> Rule:
    """Windows of a dimension become rows, and a new last dimension, which stays whole."""
    at = call.dim("dimension", call.first.dim())
    if not call.first.dim():
        return rule([()], [((),)], {}, linear=ONE)
    rows, length, step = call.first.shape[at], call.option("size"), call.option("step")
    window = Window(rows, step, 0, length, call.result.shape[at])
    return _moved(call, {at: Halo(window, reads=READS)})


def unfold_backward(call: Call) -> Rule:
    """Rows of the new dimension are added to those that they come from."""
    at = call.dim("dim", call.result.dim())
    if not call.result.dim():
        return rule([((),)], [()], {}, linear=ONE)
    rows, length, step = call.result.shape[at], call.option("size"), call.option("step")
    window = Window(rows, step, 0, length, call.first.shape[at])
    dims, sizes = named(call.result.shape)
    if not (dims[at] and call.first.shape[at] > 1):
        dims = (*dims[:at], (), *dims[at + 1 :])
    halos = {dims[at][0]: Halo(window, adds=READS)} if dims[at] else {}
    if dims[at]:
        sizes[dims[at][0]] = window.anchor
    return rule([(*dims, ())], [dims], sizes, linear=ONE, shapes={1: 0}, passes=True, halos=halos)


def repeat_rows(call: Call) -> Rule:
    """A row of the operand is a window of the result."""
    at, times = call.option("dim"), call.option("times")
    large, small = call.result.shape[at], call.first.shape[at]
    return _moved(call, {at: Halo(Window(large, times, 0, times, small), adds=READS)})


def add_rows(call: Call) -> Rule:
    """The adjoint."""
    at, times = call.option("dim"), call.option("times")
    large, small = call.first.shape[at], call.result.shape[at]
    return _moved(call, {at: Halo(Window(large, times, 0, times, small), reads=READS)})


RULES: Final[Rules] = {
    REPEAT: repeat_rows, ADD: add_rows,
    aten.slice.Tensor: slice_rows, aten.slice_backward.default: slice_backward,
    aten.constant_pad_nd.default: pad, aten.roll.default: roll, aten.flip.default: flip,
    aten.unfold.default: unfold, aten.unfold_backward.default: unfold_backward,
}  # fmt: skip
