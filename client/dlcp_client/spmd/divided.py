"""One call of a captured graph, written for shards."""

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from .capture import Value
from .combined import OF
from .emission import Emitter
from .halos import windows_of, with_edits
from .nodes import function, method
from .random_bits import BITS
from .rules import Rule
from .rules.call import results_of
from .rules.rule import Halo
from .sharding import Sharding

aten = torch.ops.aten


@dataclass(frozen=True, slots=True, eq=False)
class DividedCall:
    """`made`: the shardings of its results; `halos`: the axes of its factors with windows."""

    node: fx.Node
    rule: Rule
    made: Sequence[Sharding]
    halos: Mapping[str, str]

    def reads(self, operand: int) -> Iterator[tuple[int, str, Halo]]:
        """The windows that it needs of an operand: dimension, axis, halo."""
        dims = self.rule.operands[operand]
        return (one for one in windows_of(self.rule, self.halos, dims) if operand in one[2].reads)

    def adds(self, result: int) -> Iterator[tuple[int, str, Halo]]:
        """The windows that it makes of a result."""
        dims = self.rule.results[result]
        return (one for one in windows_of(self.rule, self.halos, dims) if result in one[2].adds)


def emitted(call: DividedCall, given: Sequence[fx.Node], emitter: Emitter) -> list[fx.Node | None]:
    """The results of a call on shards and windows. None: one that is not computed."""
    node, graph, mesh = call.node, emitter.graph, emitter.mesh
    if call.rule.reshapes:
        shape = list(mesh.local_shape(Value(node).shape, call.made[0]))
        return [function(graph, aten.reshape.default, (given[0], shape))]
    if node.target == BITS:
        splits: Any = [[tuple(split) for split in splits] for splits in call.made[0]]
        return [method(graph, "bits", (emitter.ranks, node.args[0], splits, *node.args[1:]))]
    target: Any = node.target
    args, kwargs = _arguments(call, given, emitter)
    out = function(graph, target, tuple(args), kwargs)
    out.meta[OF] = node
    if isinstance(node.meta["val"], torch.Tensor):
        return [_added(call, 0, out, emitter)]
    found: list[fx.Node | None] = []
    for at, one in enumerate(results_of(node)):
        x = None if one is None else function(graph, operator.getitem, (out, at))
        found.append(None if x is None else _added(call, at, x, emitter))
    return found


def _arguments(
    call: DividedCall, given: Sequence[fx.Node], emitter: Emitter
) -> tuple[list[Any], dict[str, Any]]:
    """Tensors are replaced; shapes become those of shards, and of windows where such are made."""
    left, mesh, node = iter(given), emitter.mesh, call.node

    def put(one: fx.Node) -> fx.Node:
        return next(left)

    arguments, kwargs = fx.node.map_arg((node.args, node.kwargs), put)
    args = list(arguments)
    for at, number in call.rule.shapes.items():
        shape = list(mesh.local_shape(Value(node, number).shape, call.made[number]))
        for dim, axis, halo in call.adds(number):
            shape[dim] = halo.window.reach(mesh.sizes[axis])
        args[at] = shape
    if call.halos:
        args = with_edits(node, args, call.rule, call.halos, mesh)
    return args, dict(kwargs)


def _added(call: DividedCall, number: int, x: fx.Node, emitter: Emitter) -> fx.Node:
    """A result: the rows of windows are added to shards."""
    value = Value(call.node, number)
    for dim, axis, halo in call.adds(number):
        x = emitter.halo_reduce(x, value, (dim, axis), call.made[number], halo)
    return x
