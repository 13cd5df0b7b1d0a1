"""Writes collectives and the steps of resharding into a divided graph, and records them."""

from dataclasses import dataclass
from math import prod
from typing import Any, Final

import torch
from torch import fx

from . import nodes, regional
from .capture import Value
from .meshes import Mesh
from .resharding import Move, Step, bytes_sent
from .rules.rule import Halo
from .sharding import Sharding, Split, axes_of, replaced
from .windows import Window, received_rows, row_bytes, sent_rows

aten = torch.ops.aten
SERVES: Final = "serves"  # in the metadata of an operation: the collectives that it does


@dataclass(frozen=True, slots=True, eq=False)
class Collective:
    """One collective of a divided graph. `value`: the tensor that it completes or moves;
    `caller`: the captured node that needs it; `sent`: bytes that a rank sends."""

    node: fx.Node
    value: Value
    caller: fx.Node
    axis: str
    sent: float

    @property
    def kind(self) -> str:
        return str(self.node.target)


class Emitter:
    """The graph under construction. Its first input is `ranks`."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh, self.graph = mesh, fx.Graph()
        self.collectives: list[Collective] = []
        self.caller: fx.Node | None = None  # the captured node that is being divided
        self.ranks = self.graph.placeholder("ranks")
        self._windows: dict[tuple[fx.Node, int, Window, float], fx.Node] = {}

    def add_up(
        self, x: fx.Node, value: Value, have: Sharding, wish: Sharding, axes: tuple[str, ...]
    ) -> tuple[fx.Node, Sharding]:
        """The sum of partial sums over `axes`: a reduce-scatter where `wish` divides the tensor
        next by one of them, else an all-reduce. Returns the sum and its sharding."""
        left = list(axes)
        while left:
            dim, split = _next_wish(have, wish, left) or (-1, Split(left[0]))
            local = self._local_bytes(value, have)
            share = local * (1 - 1 / self.mesh.sizes[split.axis])
            left.remove(split.axis)
            if dim < 0:
                x = self._collective("all_reduce", x, value, split.axis, 2 * share)
                continue
            shape = self.mesh.local_shape(value.shape, have)
            have = replaced(have, dim, (*have[dim], split))
            x, at = self._in_blocks(x, shape, dim, split.outer)
            x = self._collective("reduce_scatter", x, value, split.axis, share, at)
            x = self._flat(x, value, have, split)
        return x, have

    def move(self, x: fx.Node, value: Value, step: Step) -> fx.Node:
        """One step of resharding."""
        axis, method = step.split.axis, step.move.value
        sent = bytes_sent(step, value.shape, value.tensor.element_size(), self.mesh)
        before = self.mesh.local_shape(value.shape, step.before)
        rows = self.mesh.local_shape(value.shape, step.after)[step.dim]
        x, at = self._in_blocks(x, before, step.dim, step.split.outer)
        if step.move is Move.SWAP:
            to = step.to + (step.to > step.dim) * (at - step.dim)  # behind the dimension of blocks
            in_block = rows // step.split.outer
            x = self._collective(method, x, value, axis, sent, at, to, in_block)
        elif step.move is Move.GATHER:
            x = self._collective(method, x, value, axis, sent, at, rows // step.split.outer)
        else:
            x = nodes.method(self.graph, method, (self.ranks, x, axis, at))
        return self._flat(x, value, step.after, step.split)

    def masked(self, x: fx.Node, value: Value, dim: int, sharding: Sharding) -> fx.Node:
        """Zeros as padding of a dimension."""
        size, splits = value.shape[dim], sharding[dim]
        if size % self.mesh.parts(splits) == 0:
            return x
        return nodes.method(self.graph, "masked", (self.ranks, x, dim, size, axes_of(splits)))

    def halo_exchange(
        self, x: fx.Node, value: Value, at: tuple[int, str], have: Sharding, halo: Halo
    ) -> fx.Node:
        """The window of a dimension, `at` that and the axis that divides it. A window that serves
        several calls is fetched once."""
        dim, axis = at
        key = x, dim, halo.window, halo.fill
        if key not in self._windows:
            sent = sent_rows(halo.window, self.mesh.sizes[axis]) * self._row_bytes(value, dim, have)
            self._windows[key] = self._collective(
                "halo_exchange", x, value, axis, sent, dim, tuple(halo.window), halo.fill
            )
        return self._windows[key]

    def halo_reduce(
        self, x: fx.Node, value: Value, at: tuple[int, str], have: Sharding, halo: Halo
    ) -> fx.Node:
        """The shard of a dimension, out of windows."""
        dim, axis = at
        sent = received_rows(halo.window, self.mesh.sizes[axis]) * self._row_bytes(value, dim, have)
        return self._collective("halo_reduce", x, value, axis, sent, dim, tuple(halo.window))

    def of_region(self, x: fx.Node, value: Value, call: fx.Node) -> fx.Node:
        """A collective that a manual region calls, of the captured operand `value`."""
        given: Any = call.args
        _, kind, axis, dims, parts = given
        method, options = regional.meaning_of(kind, dims, value.tensor, parts)
        sent = regional.bytes_sent(kind, dims, value.tensor, parts)
        return self._collective(method, x, value, axis, sent, *options)

    def _row_bytes(self, value: Value, dim: int, have: Sharding) -> int:
        local = self.mesh.local_shape(value.shape, have)
        return row_bytes(local, dim, value.tensor.element_size())

    def _collective(
        self, method: str, x: fx.Node, value: Value, axis: str, sent: float, *options: Any
    ) -> fx.Node:
        if self.mesh.sizes[axis] == 1:
            return x
        made = nodes.method(self.graph, method, (self.ranks, x, axis, *options))
        if self.caller is None:
            raise AssertionError("a collective is written for a captured node")
        self.collectives.append(Collective(made, value, self.caller, axis, sent))
        return made

    def _in_blocks(
        self, x: fx.Node, shape: tuple[int, ...], dim: int, outer: int
    ) -> tuple[fx.Node, int]:
        """The tensor with the blocks of a dimension as a dimension of their own, and the place of
        the rows of a block."""
        if outer == 1:
            return x, dim
        blocks = [*shape[:dim], outer, shape[dim] // outer, *shape[dim + 1 :]]
        return nodes.function(self.graph, aten.reshape.default, (x, blocks)), dim + 1

    def _flat(self, x: fx.Node, value: Value, sharding: Sharding, split: Split) -> fx.Node:
        """The tensor without a dimension of blocks."""
        if split.outer == 1:
            return x
        shape = list(self.mesh.local_shape(value.shape, sharding))
        return nodes.function(self.graph, aten.reshape.default, (x, shape))

    def _local_bytes(self, value: Value, sharding: Sharding) -> int:
        local = self.mesh.local_shape(value.shape, sharding)
        return prod(local) * value.tensor.element_size()


def _next_wish(have: Sharding, wish: Sharding, axes: list[str]) -> tuple[int, Split] | None:
    """The dimension that `wish` divides next by one of the axes, and the split."""
    for dim, splits in enumerate(wish):
        count = len(have[dim])
        if have[dim] == splits[:count] and len(splits) > count and splits[count].axis in axes:
            return dim, splits[count]
    return None
