"""Calls that occur several times with the same arguments are made once.

Three linear layers of one input capture three views of it. As one tensor, it is gathered once.
"""

from typing import Any

import torch
from torch import fx


def merge_repeated(graph: fx.Graph) -> None:
    """Random calls stay: each gives other numbers."""
    first: dict[Any, fx.Node] = {}
    for node in graph.nodes:
        if node.op != "call_function" or _is_random(node):
            continue
        key = key_of((node.target, node.args, tuple(sorted(node.kwargs.items()))))
        if node is not first.setdefault(key, node):
            node.replace_all_uses_with(first[key])
            graph.erase_node(node)


def _is_random(node: fx.Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def key_of(value: Any) -> Any:
    """The same, of types that have a hash; numbers of different types are different."""
    if isinstance(value, list | tuple):
        return type(value).__name__, tuple(map(key_of, value))
    if isinstance(value, int | float):
        return type(value).__name__, repr(value)
    return value
