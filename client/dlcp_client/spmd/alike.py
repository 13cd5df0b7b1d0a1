"""Repeated layers: nodes with equal surroundings are planned once.

Two nodes are alike if operation, arguments, shapes, line and annotation are equal, and those of the
nodes up to `ROUNDS` edges away. Numbers in the names of parameters do not count: they tell layers
apart. Nodes that are alike share a sharding; a program is right with any sharding.
"""

import re
from collections import defaultdict
from collections.abc import Hashable, Mapping
from typing import Any, Final

from torch import fx

from .annotations import Annotation
from .borders import ENTER, LEAVE
from .capture import Captured, Value
from .marks import MARK
from .random_bits import BITS
from .repeated import key_of
from .rules.call import results_of

ROUNDS: Final = 6  # more than from any tensor of a transformer layer to an annotated one


def first_alike(
    captured: Captured, annotated: Mapping[Value, Annotation]
) -> dict[fx.Node, fx.Node]:
    """For each node the first one that is like it."""
    nodes = [node for node in captured.graph.nodes if node.op != "output"]
    edges = [(node, node.all_input_nodes, _users(node)) for node in nodes]
    kinds = _numbered(_kinds(captured, annotated, nodes))
    for _ in range(ROUNDS):
        count = len(set(kinds.values()))
        around = {}
        for node, given, users in edges:
            after = sorted([kinds[one] for one in users])
            around[node] = kinds[node], tuple([kinds[one] for one in given]), tuple(after)
        kinds = _numbered(around)
        if len(set(kinds.values())) == count:
            break
    first: dict[int, fx.Node] = {}
    return {node: first.setdefault(kind, node) for node, kind in kinds.items()}


def _users(node: fx.Node) -> list[fx.Node]:
    return [user for user in node.users if user.op != "output"]


def _numbered(kinds: Mapping[fx.Node, Hashable]) -> dict[fx.Node, int]:
    """Small numbers for kinds: these are compared often."""
    numbers: dict[Hashable, int] = {}
    return {node: numbers.setdefault(kind, len(numbers)) for node, kind in kinds.items()}


def _kinds(
    captured: Captured, annotated: Mapping[Value, Annotation], nodes: list[fx.Node]
) -> dict[fx.Node, Hashable]:
    """Each node by itself: operation, arguments, shapes, line, port and annotation."""
    about: dict[fx.Node, list[Hashable]] = defaultdict(list)
    for kind, name, value in (*captured.inputs, *captured.outputs):
        if value is not None:
            about[value.node].append((kind, value.number, re.sub(r"\d+", "#", name)))
    for value, annotation in annotated.items():
        about[value.node].append((value.number, annotation))
    return {
        node: (node.op, _call(node), _form(node), captured.line_of(node), tuple(about[node]))
        for node in nodes
    }


def _call(node: fx.Node) -> Hashable:
    """The operation and its arguments, in which tensors are numbered."""
    if node.op != "call_function" or node.target == MARK:  # the annotation tells marks apart
        return None
    if node.target == BITS:
        return node.target  # every call has another number
    if node.target in (ENTER, LEAVE):
        return node.target, key_of(node.args[2:])
    numbers = {one: f"%{at}" for at, one in enumerate(node.all_input_nodes)}
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda one: numbers[one])
    return node.target, key_of(args), key_of(tuple(sorted(kwargs.items())))


def _form(node: fx.Node) -> Any:
    return tuple((one.shape, one.dtype) if one is not None else None for one in results_of(node))
