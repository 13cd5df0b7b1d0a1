"""Nodes of graphs, made in less time than torch takes.

Torch searches the arguments of each node that it makes for symbols, which these graphs do not have:
that is more than half of the time of a node.
"""

from collections.abc import Mapping
from typing import Any, Final

from torch import fx

NONE: Final[Mapping[str, Any]] = {}


def function(
    graph: fx.Graph, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] = NONE
) -> fx.Node:
    """As `graph.call_function`."""
    return _with_arguments(graph.create_node("call_function", target), args, kwargs)


def method(graph: fx.Graph, name: str, args: tuple[Any, ...]) -> fx.Node:
    """As `graph.call_method`."""
    return _with_arguments(graph.create_node("call_method", name), args, NONE)


def copied(graph: fx.Graph, node: fx.Node, of: Mapping[fx.Node, fx.Node]) -> fx.Node:
    """As `graph.node_copy`, for a node that is no output. `of`: what became of other nodes."""
    made = graph.create_node(node.op, node.target, name=node.name)
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), of.__getitem__)
    made.meta.update(node.meta)
    return _with_arguments(made, args, kwargs)


def _with_arguments(node: fx.Node, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> fx.Node:
    # Not `node.args =`, which also looks the node up in tables by operation, twice.
    object.__setattr__(node, "args", args)
    if kwargs:
        object.__setattr__(node, "kwargs", dict(kwargs))
    return node
