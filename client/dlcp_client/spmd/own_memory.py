"""Gradients with memory of their own.

Biases of two layers that are added have one gradient, and that of a parameter may be a view of a
tensor that autograd holds. Clipping, and sums over several backward passes, change gradients in
place.
"""

import operator
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import fx

aten = torch.ops.aten
# Methods of `ranks` that may return their operand, or a view of it.
MAY_RETURN_OPERAND: Final = {"shard", "masked", "fill_outside", "halo_exchange", "halo_reduce"}


def with_own_memory(graph: fx.Graph, outputs: Sequence[fx.Node | None]) -> list[fx.Node | None]:
    """The outputs, with a copy of each that may share memory with one before or with an input. The
    copies are added at the end of `graph`."""
    known: set[fx.Node] = set()
    found: list[fx.Node | None] = []
    for one in outputs:
        if one is not None:
            memory = _memory_of(one)
            shared = memory.op == "placeholder" or memory in known
            known.add(memory)
            found.append(graph.call_function(aten.clone.default, (one,)) if shared else one)
        else:
            found.append(None)
    return found


def _memory_of(node: fx.Node) -> fx.Node:
    """The tensor whose memory a node may have: itself, if it is not a view."""
    while True:
        given: Any = node.args
        if node.op == "call_method" and node.target in MAY_RETURN_OPERAND:
            node = given[1]
        elif node.target is operator.getitem and _is_view(given[0].target):
            node = given[0].args[0]
        elif node.op == "call_function" and _is_view(node.target):
            node = given[0]
        else:
            return node


def _is_view(target: Any) -> bool:
    schema = getattr(target, "_schema", None)
    returns = schema.returns if schema else ()
    return target == aten._unsafe_view.default or any(one.alias_info for one in returns)  # noqa: SLF001
