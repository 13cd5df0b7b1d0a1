"""Manual regions in a divided graph: their nodes are copied, and their collectives become those of
the graph.

An axis that a region knows, but that does not divide a tensor at a border, has copies of it. The
gradient of a result is shared out among the copies; that of an argument is the copies' sum.
"""

from collections.abc import Mapping
from math import prod
from typing import NamedTuple

import torch
from torch import fx

from .borders import COLLECTIVE, ENTER, INDEX, LEAVE
from .capture import Value, value_of
from .emission import Emitter
from .propagation import Plan
from .sharding import Sharding, axes_in, whole

aten = torch.ops.aten


class Left(NamedTuple):
    """A tensor that has left a region; `partial`: axes over which to add it up."""

    x: fx.Node
    partial: tuple[str, ...]


class Regions:
    """`made`: what became of each captured node inside."""

    def __init__(self, plan: Plan, emitter: Emitter) -> None:
        self._plan, self._emitter = plan, emitter
        self.made: dict[fx.Node, fx.Node] = {}

    def has(self, node: fx.Node) -> bool:
        """Whether a node is inside, or leaves."""
        return node in self._plan.captured.inside or node.target == LEAVE

    def wanted(self, node: fx.Node, operand: fx.Node) -> Sharding:
        """How a node needs a tensor from outside. All but arguments are constants."""
        if node.target == ENTER:
            return self._plan.shardings[Value(node)]
        return whole(value_of(operand).tensor.dim())

    def copy(self, node: fx.Node, given: Mapping[fx.Node, fx.Node]) -> Left | None:
        """`given`: what became of the operands. None: the result stays inside."""
        emitter = self._emitter
        operands = list(given.items())
        if node.target == LEAVE:
            return Left(operands[0][1], self._copies(node))
        if node.target == ENTER:
            self.made[node] = self._entered(node, operands[0][1])
        elif node.target == COLLECTIVE:
            operand, x = operands[0]
            self.made[node] = emitter.of_region(x, value_of(operand), node)
        elif node.target == INDEX:
            self.made[node] = emitter.graph.call_method("axis_index", (emitter.ranks, *node.args))
        else:
            self.made[node] = emitter.graph.node_copy(node, lambda one: given[one])
        return None

    def _entered(self, node: fx.Node, x: fx.Node) -> fx.Node:
        copies = prod(self._plan.mesh.sizes[axis] for axis in self._copies(node))
        if copies == 1:
            return x
        return self._emitter.graph.call_function(aten.div.Scalar, (x, copies))

    def _copies(self, node: fx.Node) -> tuple[str, ...]:
        """Of a gradient, the axes along which ranks have copies."""
        _, number, _, is_gradient = node.args
        if not is_gradient:
            return ()
        known = self._plan.captured.regions[int(number)]  # type: ignore[arg-type]  # an int
        divide = axes_in(self._plan.shardings[Value(node)])
        return tuple(one for one in self._plan.mesh.names if one in known and one not in divide)
