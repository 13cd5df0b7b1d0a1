"""Calls of a rank's graph that torch has as one: they read and write memory less often.

A product and its bias, which a partial sum may come between, are one call where none does. So are
views of views. The gradient of a maximum reads where the maxima are, if the same rank has found
them before.
"""

import operator
from typing import Any, Final

import torch
from torch import Tensor, fx

from .pools import MAX, MAX_BACKWARD, MAXIMA

aten = torch.ops.aten
RESHAPE: Final = aten.reshape.default
TRANSPOSE: Final = aten.t.default
OF: Final = "captured"  # in the metadata of a call: the captured one that it is of


def combined(graph: fx.Graph) -> fx.Graph:
    """The graph itself, changed."""
    for node in list(graph.nodes):
        if node.target == aten.add.Tensor:
            _join_bias(graph, node)
        elif node.target == MAX_BACKWARD:
            _keep_indices(graph, node)
        elif node.target in (RESHAPE, TRANSPOSE):
            _join_views(graph, node)
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


def _join_views(graph: fx.Graph, node: fx.Node) -> None:
    """A reshape of a reshape, and a transpose of a transpose, which is the operand itself."""
    before = node.args[0]
    if not isinstance(before, fx.Node) or before.target != node.target:
        return
    (of,) = before.all_input_nodes
    if node.target == RESHAPE:
        if len(before.users) == 1:  # else the reshape before may be a copy, of which this is a view
            node.args = (of, *node.args[1:])
    else:
        node.replace_all_uses_with(of)
        graph.erase_node(node)


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
    if same is None:
        return
    if same.target == MAX:
        with graph.inserting_before(same):
            both = graph.call_function(_with_places, same.args)
            values = graph.call_function(operator.getitem, (both, 0))
        same.replace_all_uses_with(values)
        graph.erase_node(same)
        same = both
    with graph.inserting_before(node):
        places, like = (graph.call_function(operator.getitem, (same, at)) for at in (1, 2))
        new = graph.call_function(_gradient_at, (gradient, like, options, places))
    node.replace_all_uses_with(new)
    graph.erase_node(node)


def _with_places(x: Tensor, *options: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The maxima, their places, and a tensor of the shape of `x` without its memory: the backward
    pass needs no more of it, and a window is a copy that nothing else keeps."""
    values, places = MAXIMA[len(options[0])][0].default(x, *options)
    return values, places, x.new_zeros(()).expand(x.shape)


def _gradient_at(gradient: Tensor, like: Tensor, options: Any, places: Tensor) -> Tensor:
    backward: Any = MAXIMA[len(options[0])][1].default
    made: Tensor = backward(gradient, like, *options, places)
    return made
