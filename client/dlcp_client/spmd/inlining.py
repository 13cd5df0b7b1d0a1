"""The graph of a model out of that of what is outside of its layers, and those of its layers.

The result is the graph that torch captures of the whole model: inputs and outputs in the order of
the model's parameters and buffers, forward and backward pass of a layer where the operation is that
stands for it.
"""

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from torch import fx

from .calls import Differs
from .nodes import copied
from .private_torch import descriptors
from .stand_ins import LAYER, LAYER_BACKWARD, Form, Forms
from .tied import output_nodes

WHICH: Final = "partitioner_tag"  # which torch gives to the nodes of both passes
Pair: TypeAlias = tuple[Any, fx.Node | None]  # the description of an output, and the output


@dataclass(slots=True, eq=False)
class LayerGraph:
    """The graph of a layer, by what its inputs and outputs are. `gradients` and `updates` are by
    the name of a parameter or buffer, `of_operands` are the gradients of operands."""

    operands: dict[int, fx.Node] = field(default_factory=dict)
    tensors: dict[str, fx.Node] = field(default_factory=dict)
    tangents: dict[int, fx.Node] = field(default_factory=dict)
    results: dict[int, fx.Node] = field(default_factory=dict)
    gradients: dict[str, fx.Node | None] = field(default_factory=dict)
    of_operands: dict[int, fx.Node | None] = field(default_factory=dict)
    updates: dict[str, fx.Node] = field(default_factory=dict)
    forward: list[fx.Node] = field(default_factory=list)
    backward: list[fx.Node] = field(default_factory=list)

    def forms(self, operands: int) -> Forms:
        results = [_form(self.results[at], at in self.tangents) for at in sorted(self.results)]
        found = [self.of_operands.get(at) for at in range(operands)]
        return Forms(results, [None if one is None else _form(one, True) for one in found])


def _form(node: fx.Node, differentiable: bool) -> Form:
    return Form.of(node.meta["val"])._replace(differentiable=differentiable)


def layer_graph(graph: fx.Graph, prefix: str) -> LayerGraph:
    """`prefix`: before the names of parameters and buffers.

    Raises: Differs for a layer that changes an operand.
    """
    found = LayerGraph()
    for node in graph.nodes:
        if node.op == "placeholder":
            _input(found, node, prefix)
        elif node.op != "output":
            if node.op != "call_function" or (found.tangents and WHICH not in node.meta):
                raise Differs(f"a layer has the node {node}")
            after = node.meta.get(WHICH) == "is_backward"
            (found.backward if after else found.forward).append(node)
    out = graph.output_node()
    for desc, one in zip(out.meta["desc"], output_nodes(out), strict=True):
        _output(found, desc, one, prefix)
    return found


def _input(found: LayerGraph, node: fx.Node, prefix: str) -> None:
    match node.meta["desc"]:
        case descriptors.ParamAOTInput(target=name) | descriptors.BufferAOTInput(target=name):
            found.tensors[name.removeprefix(prefix)] = node
        case descriptors.PlainAOTInput(idx=number):
            found.operands[number] = node
        case descriptors.TangentAOTInput(output=descriptors.PlainAOTOutput(idx=number)):
            found.tangents[number] = node
        case other:
            raise Differs(f"a layer has the input {other}")


def _output(found: LayerGraph, desc: Any, node: fx.Node | None, prefix: str) -> None:
    match desc:
        case None if node is None:
            pass
        case descriptors.PlainAOTOutput(idx=number) if node is not None:
            found.results[number] = node
        case descriptors.GradAOTOutput(grad_of=descriptors.ParamAOTInput(target=name)):
            found.gradients[name.removeprefix(prefix)] = node
        case descriptors.GradAOTOutput(grad_of=descriptors.PlainAOTInput(idx=number)):
            found.of_operands[number] = node
        case descriptors.InputMutationAOTOutput(
            mutated_input=descriptors.BufferAOTInput(target=name)
        ) if node is not None:
            found.updates[name.removeprefix(prefix)] = node
        case other:
            raise Differs(f"a layer has the output {other}")


class Inlining:
    """`layers`: by number of the operation, the name of a layer and its graph; `names`: of all
    parameters and buffers of the model, in order."""

    def __init__(
        self, outside: fx.Graph, layers: Sequence[tuple[str, LayerGraph]], names: Sequence[str]
    ) -> None:
        self._outside, self._layers, self._names = outside, layers, names
        self.graph = fx.Graph()
        self._of: dict[fx.Node, fx.Node] = {}  # nodes outside
        self._within: list[dict[fx.Node, fx.Node]] = [{} for _ in layers]
        self._parts: dict[fx.Node, list[fx.Node]] = {}  # results of an operation for a layer

    def run(self) -> fx.Graph:
        nodes = list(self._outside.nodes)
        self._inputs([node for node in nodes if node.op == "placeholder"])
        for node in nodes:
            if node.op in ("placeholder", "output"):
                continue
            if node.target == LAYER:
                self._forward(node)
            elif node.target == LAYER_BACKWARD:
                self._backward(node)
            elif node.target is operator.getitem and node.args[0] in self._parts:
                self._of[node] = self._parts[node.args[0]][node.args[1]]
            else:
                self._copy(node, self._of)
        self._outputs(self._outside.output_node())
        for node in reversed(self.graph.nodes):
            if node.op == "call_function" and not node.users and not node.is_impure():
                self.graph.erase_node(node)  # a result of a layer that nothing uses
        return self.graph

    def _inputs(self, outside: Sequence[fx.Node]) -> None:
        """The parameters and buffers of layers among those outside."""
        known = {getattr(node.meta["desc"], "target", None): node for node in outside}
        for name in self._names:
            if name in known:
                self._copy(known.pop(name), self._of)
                continue
            number, last = self._owner(name)
            node = self._layers[number][1].tensors[last]
            made = self._copy(node, self._within[number])
            made.meta["desc"] = type(node.meta["desc"])(name)
        for node in outside:
            if node not in self._of:
                self._copy(node, self._of)

    def _owner(self, name: str) -> tuple[int, str]:
        for number, (layer, _) in enumerate(self._layers):
            if name.startswith(f"{layer}."):
                return number, name.removeprefix(f"{layer}.")
        raise Differs(f"{name} belongs to no layer")

    def _copy(self, node: fx.Node, of: dict[fx.Node, fx.Node]) -> fx.Node:
        of[node] = made = copied(self.graph, node, of)
        return made

    def _forward(self, call: fx.Node) -> None:
        arguments: Any = call.args
        operands, number = arguments
        graph, of = self._layers[number][1], self._within[number]
        for at, one in enumerate(operands):
            of[graph.operands[at]] = self._of[one]
        for node in graph.forward:
            self._copy(node, of)
        self._parts[call] = [of[graph.results[at]] for at in sorted(graph.results)]

    def _backward(self, call: fx.Node) -> None:
        arguments: Any = call.args
        tangents, number = arguments
        graph, of = self._layers[number][1], self._within[number]
        for at, one in zip(sorted(graph.tangents), tangents, strict=True):
            of[graph.tangents[at]] = self._of[one]
        for node in graph.backward:
            self._copy(node, of)
        found = [graph.of_operands[at] for at in sorted(graph.of_operands)]
        self._parts[call] = [of[one] for one in found if one is not None]

    def _outputs(self, out: fx.Node) -> None:
        """Updates, results, and a gradient or None for each input, as torch orders them."""
        updates: dict[str, Pair] = {}
        results: list[Pair] = []
        rest: list[Pair] = []
        for desc, one in zip(out.meta["desc"], output_nodes(out), strict=True):
            pair = desc, None if one is None else self._of[one]
            match desc:
                case descriptors.InputMutationAOTOutput(
                    mutated_input=descriptors.BufferAOTInput(target=name)
                ):
                    updates[name] = pair
                case descriptors.PlainAOTOutput():
                    results.append(pair)
                case _:
                    rest.append(pair)
        for (layer, graph), of in zip(self._layers, self._within, strict=True):
            for last, node in graph.updates.items():
                buffer = descriptors.BufferAOTInput(f"{layer}.{last}")
                updates[buffer.target] = descriptors.InputMutationAOTOutput(buffer), of[node]
        ordered = [updates[name] for name in self._names if name in updates]
        ordered += [*results, *self._gradients(rest)]
        made = self.graph.output(tuple(node for _, node in ordered))
        made.meta["desc"] = [desc for desc, _ in ordered]

    def _gradients(self, outside: Sequence[Pair]) -> Iterator[Pair]:
        """`outside`: one for each input that is no tangent; none in inference."""
        if not outside:
            return
        nodes = [node for node in self._outside.nodes if node.op == "placeholder"]
        by_name = {
            getattr(node.meta["desc"], "target", at): pair
            for at, (node, pair) in enumerate(zip(nodes, outside, strict=False))
        }
        for name in self._names:
            if name in by_name:
                yield by_name.pop(name)
                continue
            number, last = self._owner(name)
            one = self._layers[number][1].gradients.get(last)
            if last not in self._layers[number][1].gradients:
                yield None, None
            else:
                target = descriptors.ParamAOTInput(name)
                made = None if one is None else self._within[number].get(one)
                yield descriptors.GradAOTOutput(target), made
        yield from by_name.values()
