"""Calls that occur several times with the same arguments are made once.

Three linear layers of one input capture three views of it. As one tensor, it is gathered once.
"""

from typing import Any

import torch
from torch import fx


def merge_repeated(graph: fx.Graph) -> None:
    """Random calls stay: each gives other numbers."""
    similar: dict[Any, list[fx.Node]] = {}  # of these alone the arguments are compared
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        others = similar.setdefault((node.target, *node.all_input_nodes), [])
        if others and not _is_random(node):
            key = _key(node)
            same = next((one for one in others if _key(one) == key), None)
            if same is not None:
                node.replace_all_uses_with(same)
                graph.erase_node(node)
                continue
        others.append(node)


def _key(node: fx.Node) -> Any:
    return key_of((node.args, tuple(sorted(node.kwargs.items()))))


def _is_random(node: fx.Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def key_of(value: Any) -> Any:
    """The same, of types that have a hash; numbers of different types are different."""
    if isinstance(value, list | tuple):
        return type(value).__name__, tuple(map(key_of, value))
    if isinstance(value, int | float):
        return type(value).__name__, repr(value)
    return value
