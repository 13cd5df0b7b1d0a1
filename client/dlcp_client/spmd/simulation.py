"""All ranks of a divided graph in one process, node by node: without a network, for tests."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, fx

from .collectives import MEANING, Position
from .meshes import Mesh


def simulate(graph: fx.Graph, mesh: Mesh, inputs: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """The outputs of every rank. `inputs`: per rank, without `ranks`."""
    positions = [Position(mesh, rank) for rank in range(mesh.ranks)]
    held: dict[fx.Node, list[Any]] = {}
    given = iter(range(-1, len(inputs[0])))
    for node in graph.nodes:
        if node.op == "placeholder":
            at = next(given)
            held[node] = [one[at] for one in inputs] if at >= 0 else positions
        elif node.op == "output":
            return [tuple(_put(node.args[0], held, rank)) for rank in range(mesh.ranks)]
        elif node.op == "call_method" and node.target in MEANING:
            held[node] = _collective(node, mesh, held)
        else:
            held[node] = [_alone(node, held, rank) for rank in range(mesh.ranks)]
    raise ValueError("the graph has no output")


def _put(arguments: Any, held: Mapping[fx.Node, Sequence[Any]], rank: int) -> Any:
    return fx.node.map_arg(arguments, lambda node: held[node][rank])


def _alone(node: fx.Node, held: Mapping[fx.Node, Sequence[Any]], rank: int) -> Any:
    args, kwargs = _put(node.args, held, rank), _put(node.kwargs, held, rank)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    if node.op == "call_module" and node.graph.owning_module is not None:
        return node.graph.owning_module.get_submodule(str(node.target))(*args, **kwargs)
    if callable(node.target):
        return node.target(*args, **kwargs)
    raise ValueError(f"{node.format_node()} is not a call")


def _collective(node: fx.Node, mesh: Mesh, held: Mapping[fx.Node, Sequence[Any]]) -> list[Tensor]:
    _, x, axis, *options = node.args
    found: dict[int, Tensor] = {}
    for rank in range(mesh.ranks):
        if rank not in found:
            members = mesh.members(rank, str(axis))
            given = [held[x][member] for member in members]  # type: ignore[index]  # x is a node
            results = MEANING[str(node.target)](given, *options)
            found |= dict(zip(members, results, strict=True))
    return [found[rank] for rank in range(mesh.ranks)]
