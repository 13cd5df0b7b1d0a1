"""Capture of a model: one graph of the forward and the backward pass, in ATen operations.

Torch keeps `aot_export_joint_with_descriptors` for such tools. Shapes are those of the example.
"""

import linecache
import math
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from traceback import walk_tb
from types import FrameType
from typing import Any, Final, NamedTuple

import torch
from torch import fx, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from dlcpd.contract.errors import BadConfig

from .annotations import Annotation
from .marks import collected
from .meshes import Mesh
from .pools import replace_pools
from .private_torch import (
    aot_export_joint_with_descriptors,
    descriptors,
    get_decompositions,
    preserve_node_meta,
    set_stack_trace,
)
from .repeated import merge_repeated
from .rules.call import results_of
from .tied import merge_tied, output_nodes

aten = torch.ops.aten
# Operations that become others, which have rules; `_decompositions` adds three.
DECOMPOSED: Final = (
    aten.addmv, aten.baddbmm, aten.addbmm, aten.nll_loss_forward,
    aten.nll_loss_backward, aten.mse_loss, aten.mse_loss_backward, aten.smooth_l1_loss,
    aten.smooth_l1_loss_backward, aten.huber_loss, aten.huber_loss_backward,
    aten.binary_cross_entropy, aten.binary_cross_entropy_backward,
)  # fmt: skip
TORCH: Final = str(Path(torch.__file__).parent)


class Value(NamedTuple):
    """One tensor of a graph: a result of a node."""

    node: fx.Node
    number: int = 0

    @property
    def tensor(self) -> torch.Tensor:
        """The fake tensor with its global shape."""
        found = results_of(self.node)[self.number]
        if found is None:
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


class Port(NamedTuple):
    """An input or an output. `name`: of the parameter or buffer, or the number of the argument or
    result. `value`: None for a gradient that does not exist."""

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
    marks: tuple[Annotation, ...]  # of `mesh_split`, by number

    def input(self, kind: Kind, name: str) -> Port | None:
        return next((one for one in self.inputs if one[:2] == (kind, name)), None)

    def calls(self) -> list[fx.Node]:
        """The operations that make tensors, in order."""
        return [
            node
            for node in self.graph.nodes
            if node.op == "call_function" and node.target is not operator.getitem
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
    with ExitStack() as stack:
        marks = stack.enter_context(collected(mesh))
        stack.enter_context(preserve_node_meta())
        stack.enter_context(_Lines())
        try:
            joint = aot_export_joint_with_descriptors(
                stack, model, tuple(example), decompositions=_decompositions()
            )
        except BadConfig:
            raise  # of `mesh_split`
        except Exception as error:
            raise BadConfig(_not_captured(model, error)) from error
        graph = joint.graph_module.graph
        graph.eliminate_dead_code()
        merge_tied(graph, model)
        replace_pools(graph)
        merge_repeated(graph)
        inputs = [
            _input(node.meta["desc"], node) for node in graph.nodes if node.op == "placeholder"
        ]
        out = graph.output_node()
        outputs = [_output(*pair) for pair in zip(out.meta["desc"], output_nodes(out), strict=True)]
        lines = {node: node.stack_trace for node in graph.nodes if node.stack_trace}
        return Captured(
            graph, tuple(inputs), tuple(outputs), arguments, joint.out_spec, lines, tuple(marks)
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
        case descriptors.InputMutationAOTOutput():
            raise BadConfig(
                f"the model changes {desc.mutated_input.expr()} in place: spmd does not support "
                "that yet; use a layer without running statistics"
            )
    raise BadConfig(f"the model has an output that spmd does not know: {desc.expr()}")


def _mean(
    x: torch.Tensor,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """A sum, which may be partial, and a division."""
    dims = list(dim) if dim else list(range(x.dim()))
    count = math.prod(x.shape[at] for at in dims)
    return torch.sum(x, dims, keepdim, dtype=dtype) / count


def _addmm(
    bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """A product, which may be partial, and a sum: without torch's multiplications by 1."""
    product = torch.mm(a, b) if alpha == 1 else torch.mm(a, b) * alpha
    return product + (bias if beta == 1 else bias * beta)


def _convolution(x: torch.Tensor, weight: torch.Tensor, bias: Any, *options: Any) -> Any:
    """A product, which may be partial, and a sum."""
    if bias is None:
        return NotImplemented  # it stays
    return aten.convolution.default(x, weight, None, *options) + bias.view(-1, *[1] * (x.dim() - 2))


def _convolution_backward(
    gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, sizes: Any, *options: Any
) -> Any:
    """The bias' gradient is a sum of its own: the call on a window has rows of other ranks."""
    *others, mask = options
    if not mask[2]:
        return NotImplemented  # it stays
    of_x = of_weight = None
    if mask[0] or mask[1]:
        mask = [mask[0], mask[1], False]
        of_x, of_weight, _ = aten.convolution_backward.default(
            gradient, x, weight, None, *others, mask
        )
    return of_x, of_weight, gradient.sum([0, *range(2, gradient.dim())])


def _decompositions() -> dict[Any, Callable[..., Any]]:
    """Operations that become others, which have rules."""
    table = get_decompositions(DECOMPOSED)
    ours: dict[Any, Any] = {
        aten.addmm.default: _addmm,
        aten.mean.dim: _mean,
        aten.mean.default: _mean,
    }
    ours[aten.convolution.default] = _convolution
    ours[aten.convolution_backward.default] = _convolution_backward
    return {**table, **ours}


class _Lines(TorchFunctionMode):
    """Notes the user's line of every call of torch. Autograd keeps it for the backward pass."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # CPython's only way
        while frame is not None and frame.f_code.co_filename.startswith(TORCH):
            frame = frame.f_back
        if frame is not None:
            file, number = frame.f_code.co_filename, frame.f_lineno
            code = linecache.getline(file, number).strip()
            set_stack_trace([f"{Path(file).name}:{number}: {code}"])
        return func(*args, **(kwargs or {}))


def _not_captured(model: nn.Module, error: Exception) -> str:
    frames = [
        f"{Path(frame.f_code.co_filename).name}:{line}"
        for frame, line in walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith((TORCH, str(Path(__file__).parent)))
    ]
    where = f" at {frames[-1]}" if frames else ""
    said = str(error).strip().splitlines() or [type(error).__name__]
    return (
        f"{type(model).__name__} cannot be captured{where}: {said[0]}; shapes and branches must "
        "not depend on values of tensors"
    )
