"""The graphs of the forward and the backward pass, out of the joint one.

The backward pass has the nodes that depend on a tangent, and the nodes that no result needs.
Tensors of the forward pass that it reads are saved.
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass

from torch import fx

from .capture import Captured, Kind
from .own_memory import with_own_memory


@dataclass(frozen=True, slots=True, eq=False)
class Halves:
    """`forward`: (ranks, inputs) to (results, updates, saved); `backward`: (ranks, saved, tangents)
    to gradients. `results` and `updates` are numbers of outputs."""

    forward: fx.GraphModule
    backward: fx.GraphModule
    results: int
    updates: int


def halves_of(graph: fx.Graph, captured: Captured) -> Halves:
    """`graph`: a divided one of `captured`."""
    ranks, *inputs = [node for node in graph.nodes if node.op == "placeholder"]
    kinds = [port.kind for port in captured.inputs]
    tangents = [one for one, kind in zip(inputs, kinds, strict=True) if kind is Kind.TANGENT]
    primals = [one for one in inputs if one not in tangents]
    outputs: Sequence[fx.Node | None] = graph.output_node().args[0]  # type: ignore[assignment]  # a tuple
    kinds = [port.kind for port in captured.outputs]
    results = [one for one, kind in zip(outputs, kinds, strict=True) if kind is Kind.RESULT]
    gradients = [one for one, kind in zip(outputs, kinds, strict=True) if kind is Kind.GRADIENT]
    updates = [one for one, kind in zip(outputs, kinds, strict=True) if kind is Kind.UPDATE]
    before = needed_by([*results, *updates]) | {ranks, *primals}
    after = needed_by(gradients) - before
    saved = _saved(graph, before - {ranks}, after, gradients)
    forward = _copied(graph, before, [ranks, *primals], [*results, *updates, *saved])
    backward = _copied(graph, after, [ranks, *saved, *tangents], gradients, own_memory=True)
    return Halves(forward, backward, len(results), len(updates))


def needed_by(nodes: Sequence[fx.Node | None]) -> set[fx.Node]:
    """The nodes and all that they depend on, with every part of a call with several results."""
    found: set[fx.Node] = set()
    left = [one for one in nodes if one is not None]
    while left:
        node = left.pop()
        if node not in found:
            found.add(node)
            left += node.all_input_nodes
            left += [user for user in node.users if user.target is operator.getitem]
    return found


def _saved(
    graph: fx.Graph,
    before: set[fx.Node],
    after: set[fx.Node],
    gradients: Sequence[fx.Node | None],
) -> list[fx.Node]:
    """The nodes of the forward pass that the backward pass reads, in order."""
    read = {one for node in after for one in node.all_input_nodes} | set(gradients)
    return [node for node in graph.nodes if node in before and node in read]


def _copied(
    graph: fx.Graph,
    nodes: set[fx.Node],
    inputs: Sequence[fx.Node],
    outputs: Sequence[fx.Node | None],
    *,
    own_memory: bool = False,
) -> fx.GraphModule:
    made, of = fx.Graph(), {}
    for node in inputs:
        of[node] = made.placeholder(node.name)
    for node in graph.nodes:
        if node in nodes and node not in of:
            of[node] = made.node_copy(node, lambda one: of[one])
    left = [None if one is None else of[one] for one in outputs]
    made.output(tuple(with_own_memory(made, left) if own_memory else left))
    made.eliminate_dead_code()
    return fx.GraphModule({}, made)
