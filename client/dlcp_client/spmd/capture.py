"""Capture of a model: one graph of the forward and the backward pass, in ATen operations.

Torch keeps `aot_export_joint_with_descriptors` for such tools. Shapes are those of the example.
"""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import torch
from torch import fx, nn
from torch.utils import _pytree as pytree

from dlcp_client.user_lines import line_of, place_of
from dlcpd.contract.errors import BadConfig

from .annotations import Annotation
from .borders import ENTER, nodes_inside
from .joint import joint_of
from .marks import collected
from .meshes import Mesh
from .numbering import number_calls
from .private_torch import descriptors
from .repeated import merge_repeated
from .reuse import joint_with_layers
from .tied import merge_tied, output_nodes


class Value(NamedTuple):
    """One tensor of a graph: a result of a node."""

    node: fx.Node
    number: int = 0

    @property
    def tensor(self) -> torch.Tensor:
        """The fake tensor with its global shape."""
        found = self.node.meta["val"]
        if isinstance(found, list | tuple):
            found = found[self.number]
        if not isinstance(found, torch.Tensor):
            raise ValueError(f"{self.node} does not compute its result {self.number}")
        return found

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)


class Kind(Enum):
    """The kinds of inputs and outputs of a graph."""

    PARAMETER = "parameter"
    BUFFER = "buffer"
    ARGUMENT = "argument"
    TANGENT = "tangent"
    RESULT = "result"
    GRADIENT = "gradient"
    UPDATE = "update"  # of a buffer


class Port(NamedTuple):
    """An input or an output. `name`: of the parameter or buffer, also of its gradient or update, or
    the number of the argument or result. `value`: None for a gradient that does not exist."""

    kind: Kind
    name: str
    value: Value | None


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """The graph, what its inputs and outputs are, and how arguments and results are nested."""

    graph: fx.Graph
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    arguments: pytree.TreeSpec
    results: pytree.TreeSpec
    lines: Mapping[fx.Node, str]
    marks: tuple[Annotation, ...]  # of `mesh_split`, and of borders of regions, by number
    regions: Mapping[int, set[str]] = field(default_factory=dict)  # axes, by number of a border
    inside: frozenset[fx.Node] = frozenset()  # of manual regions

    def input(self, kind: Kind, name: str) -> Port | None:
        return next((one for one in self.inputs if one[:2] == (kind, name)), None)

    def calls(self) -> list[fx.Node]:
        """The operations that make tensors, in order; not those inside manual regions."""
        return [
            node
            for node in self.graph.nodes
            if node.op == "call_function"
            and node.target is not operator.getitem
            and (node not in self.inside or node.target == ENTER)
        ]

    def line_of(self, node: fx.Node) -> str:
        """`model.py:12: x = self.up(x)`: the user's line that a node comes from."""
        return self.lines.get(node, "unknown line")


def value_of(node: fx.Node) -> Value:
    """The value that a node stands for: `getitem` is a result of its operand."""
    if node.target is operator.getitem:
        of, number = node.args
        return Value(of, number)  # type: ignore[arg-type]  # fx has wide types
    return Value(node)


def capture(model: nn.Module, mesh: Mesh, example: Sequence[Any]) -> Captured:
    """Raises: BadConfig naming the line that cannot be captured."""
    leaves, arguments = pytree.tree_flatten(tuple(example))
    if not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
        raise BadConfig("example= has a value that is not a tensor: give the model tensors only")
    with collected(mesh) as marks:
        try:
            joint = joint_with_layers(model, tuple(example)) or joint_of(model, tuple(example))
        except BadConfig:
            raise  # of `mesh_split` or `manual`
        except Exception as error:
            raise BadConfig(_not_captured(model, error)) from error
        graph = joint.graph
        number_calls(graph, marks)
        merge_tied(graph, model)
        merge_repeated(graph)
        inputs = [
            _input(node.meta["desc"], node) for node in graph.nodes if node.op == "placeholder"
        ]
        out = graph.output_node()
        outputs = [_output(*pair) for pair in zip(out.meta["desc"], output_nodes(out), strict=True)]
        lines = {node: line_of(node) for node in graph.nodes if node.stack_trace}
        return Captured(
            graph,
            tuple(inputs),
            tuple(outputs),
            arguments,
            joint.results,
            lines,
            tuple(marks.found),
            marks.regions,
            nodes_inside(graph),
        )


def _input(desc: Any, node: fx.Node) -> Port:
    match desc:
        case descriptors.ParamAOTInput():
            return Port(Kind.PARAMETER, desc.target, Value(node))
        case descriptors.BufferAOTInput():
            return Port(Kind.BUFFER, desc.target, Value(node))
        case descriptors.PlainAOTInput():
            return Port(Kind.ARGUMENT, str(desc.idx), Value(node))
        case descriptors.TangentAOTInput(output=descriptors.PlainAOTOutput(idx=number)):
            return Port(Kind.TANGENT, str(number), Value(node))
        case descriptors.TangentAOTInput(output=descriptors.InputMutationAOTOutput() as changed):
            raise _changed(changed)
    raise BadConfig(f"the model has an input that spmd does not know: {desc.expr()}")


def _output(desc: Any, node: fx.Node | None) -> Port:
    if node is None:  # an argument or a parameter that needs no gradient
        return Port(Kind.GRADIENT, "", None)
    value = value_of(node)
    match desc:
        case descriptors.PlainAOTOutput():
            return Port(Kind.RESULT, str(desc.idx), value)
        case descriptors.GradAOTOutput(grad_of=descriptors.ParamAOTInput(target=name)):
            return Port(Kind.GRADIENT, name, value)
        case descriptors.GradAOTOutput(grad_of=descriptors.PlainAOTInput(idx=number)):
            raise BadConfig(
                f"argument {number} of the example requires a gradient: spmd computes gradients "
                "of parameters only; use detach()"
            )
        case descriptors.InputMutationAOTOutput(
            mutated_input=descriptors.BufferAOTInput(target=name)
        ):
            return Port(Kind.UPDATE, name, value)
        case descriptors.InputMutationAOTOutput():
            raise _changed(desc)
    raise BadConfig(f"the model has an output that spmd does not know: {desc.expr()}")


def _changed(desc: Any) -> BadConfig:
    return BadConfig(
        f"the model changes {desc.mutated_input.expr()} in place: only buffers may change"
    )


def _not_captured(model: nn.Module, error: Exception) -> str:
    said = str(error).strip().splitlines() or [type(error).__name__]
    return (
        f"{type(model).__name__} cannot be captured{place_of(error)}: {said[0]}; shapes and "
        "branches must not depend on values of tensors"
    )
