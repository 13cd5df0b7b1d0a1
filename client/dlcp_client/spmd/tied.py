"""Tied parameters: torch captures an input and a gradient per name, the model has one tensor."""

from typing import Any

import torch
from torch import fx, nn

from .private_torch import descriptors

aten = torch.ops.aten


def merge_tied(graph: fx.Graph, model: nn.Module) -> None:
    """Keep the first name of each parameter, and add up the gradients of all its names."""
    first: dict[int, str] = {}
    inputs: dict[str, fx.Node] = {}
    names: dict[str, str] = {}  # from each name to the first
    for node in graph.find_nodes(op="placeholder"):
        desc = node.meta["desc"]
        if isinstance(desc, descriptors.ParamAOTInput):
            name = first.setdefault(id(model.get_parameter(desc.target)), desc.target)
            names[desc.target] = name
            if node is not inputs.setdefault(name, node):
                node.replace_all_uses_with(inputs[name])
                graph.erase_node(node)
    _add_gradients(graph, names)


def _add_gradients(graph: fx.Graph, names: dict[str, str]) -> None:
    out = graph.output_node()
    kept: list[tuple[Any, Any]] = []  # description and node
    places: dict[str, int] = {}
    for desc, node in zip(out.meta["desc"], output_nodes(out), strict=True):
        name = _of_parameter(desc)
        at = places.setdefault(names[name], len(kept)) if name and node is not None else len(kept)
        if at == len(kept):
            kept.append((desc, node))
            continue
        other = kept[at][1]
        with graph.inserting_before(out):
            total = graph.call_function(aten.add.Tensor, (other, node))
        total.meta.update(val=other.meta["val"], stack_trace=other.stack_trace)
        kept[at] = kept[at][0], total
    out.meta["desc"] = [desc for desc, _ in kept]
    out.args = (tuple(node for _, node in kept),)


def _of_parameter(desc: Any) -> str:
    """The name of the parameter that an output is the gradient of; empty: it is another output."""
    match desc:
        case descriptors.GradAOTOutput(grad_of=descriptors.ParamAOTInput(target=str(name))):
            return name
    return ""


def output_nodes(out: fx.Node) -> tuple[fx.Node | None, ...]:
    """The outputs of a graph. None: a gradient that does not exist."""
    return tuple(out.args[0])  # type: ignore[arg-type]  # the output of a graph has one list
