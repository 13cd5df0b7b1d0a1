"""Calls of a rank's graph that torch has as one: they read and write memory less often.

A product and its bias, which a partial sum may come between, are one call where none does. The
gradient of a maximum reads where the maxima are, if the same rank has found them before.
"""

import operator
from typing import Any, Final

import torch
from torch import Tensor, fx

from .pools import MAX, MAX_BACKWARD, MAXIMA

aten = torch.ops.aten
OF: Final = "captured"  # in the metadata of a call: the captured one that it is of
MAX_INDEX: Final = (1 << 31) - 1


def combined(graph: fx.Graph) -> fx.Graph:
    """The graph itself, changed."""
    for node in list(graph.nodes):
        if node.target == aten.add.Tensor:
            _join_bias(graph, node)
        elif node.target == MAX_BACKWARD:
            _keep_indices(graph, node)
    graph.eliminate_dead_code()
    return graph


def _join_bias(graph: fx.Graph, node: fx.Node) -> None:
    """`mm` and a sum that nothing else uses: `addmm`."""
    product, bias = node.args[:2]
    if not isinstance(product, fx.Node) or not isinstance(bias, fx.Node) or node.kwargs:
        return
    if product.target != aten.mm.default or len(product.users) != 1:
        return
    made, of = _value(node), _value(product)
    given = node.meta[OF].args[1] if made is not None else None
    if made is None or of is None or made.shape != of.shape or not isinstance(given, fx.Node):
        return
    if given.meta["val"].dtype == of.dtype:  # and so of the sum
        with graph.inserting_before(node):
            new = graph.call_function(aten.addmm.default, (bias, *product.args))
        node.replace_all_uses_with(new)
        graph.erase_node(node)
        graph.erase_node(product)


def _value(node: fx.Node) -> Tensor | None:
    """The whole tensor, of which the call makes a shard."""
    of = node.meta.get(OF)
    return None if of is None else of.meta["val"]


def _keep_indices(graph: fx.Graph, node: fx.Node) -> None:
    """The places of maxima from the forward pass, if that had the same window."""
    gradient, x, *options = node.args
    if not isinstance(x, fx.Node):
        return
    found = [one for one in x.users if one.target in (MAX, _with_places)]
    same = next((one for one in found if list(one.args[1:]) == options), None)
    whole = _value(node)
    if same is None or whole is None or whole.numel() > MAX_INDEX:
        return
    if same.target == MAX:
        with graph.inserting_before(same):
            both = graph.call_function(_with_places, same.args)
            values = graph.call_function(operator.getitem, (both, 0))
        same.replace_all_uses_with(values)
        graph.erase_node(same)
        same = both
    with graph.inserting_before(node):
        places = graph.call_function(operator.getitem, (same, 1))
        new = graph.call_function(_gradient_at, (gradient, x, options, places))
    node.replace_all_uses_with(new)
    graph.erase_node(node)


def _with_places(x: Tensor, *options: Any) -> tuple[Tensor, Tensor]:
    """The maxima, and their places in half the bytes that torch takes for them."""
    values, places = MAXIMA[len(options[0])][0].default(x, *options)
    return values, places.to(torch.int32)


def _gradient_at(gradient: Tensor, x: Tensor, options: Any, places: Tensor) -> Tensor:
    backward: Any = MAXIMA[len(options[0])][1].default
    made: Tensor = backward(gradient, x, *options, places.to(torch.int64))
    return made
