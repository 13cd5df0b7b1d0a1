"""Programs: a function of tensors becomes a graph of ATen operations with a layout for each value.

A transformation works on a copy of the graph. So one that is refused changes nothing.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta

from dlcp_client.user_lines import UserLines, line_of, place_of
from dlcpd.contract.errors import BadConfig

from . import grouping, transformations
from .layouts import Layout, infer, layout_of, replicated
from .operations import UPDATE

Shape = Sequence[int] | Tensor  # or a tensor, for a dtype of its own
# Computes the update of a known optimizer in place: flat tensors and numbers by name of the input;
# the gradient's name gives the reduced one
Known = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Number:
    """The declaration of an input without dimensions, equal on all ranks."""

    dtype: torch.dtype


scalar: Final = Number(torch.float64)
integer: Final = Number(torch.int64)
Declared = Layout | Number


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """The result of `@program`: call it with shapes to get a `FusedProgram`."""

    function: Callable[..., Any]
    declared: Mapping[str, Declared]
    known: Known | None = None

    def __call__(
        self,
        shape: Sequence[int] | None = None,
        dtype: torch.dtype = torch.float32,
        **given: Any,
    ) -> "FusedProgram":
        """The program for these global shapes.

        Args:
            shape: of every tensor that `given` does not name.
            dtype: of every tensor that is given by its shape.
            given: by name, the shape of an input, or a tensor that has its shape and dtype; or the
                value of a keyword-only parameter, which is a constant of the program.

        Raises: BadConfig naming the input, or the node, line and rule.
        """
        constants = {name: value for name, value in given.items() if name not in self.declared}
        examples = {
            name: self._example(name, given.get(name, shape), dtype) for name in self.declared
        }
        graph = _traced(self.function, examples, constants)
        for node in graph.nodes:
            if node.op == "placeholder":
                kind = self.declared[node.name]
                node.meta["layout"] = replicated if isinstance(kind, Number) else kind
        name = self.function.__name__
        known = None if self.known is None else _Bound(self.known, constants)
        return FusedProgram(name, graph, known)

    def _example(self, name: str, given: Any, dtype: torch.dtype) -> Tensor:
        kind = self.declared[name]
        if isinstance(kind, Number):
            return torch.empty((), dtype=kind.dtype)
        if isinstance(given, Tensor):
            return torch.empty(given.shape, dtype=given.dtype)
        if given is None:
            raise BadConfig(f"input {name!r} has no shape: give {name}=(...) or shape=(...)")
        return torch.empty(tuple(given), dtype=dtype)


@dataclass(frozen=True, slots=True)
class _Bound:
    """A known kernel with the constants of a program."""

    kernel: Known
    constants: Mapping[str, Any]

    def __call__(self, tensors: Mapping[str, Tensor]) -> None:
        self.kernel(tensors, **self.constants)


def program(
    *, kernel: Known | None = None, **declared: Declared
) -> Callable[[Callable[..., Any]], Source]:
    """Declare a function as a program: the layout of each input, `scalar` or `integer`.

    kernel: a hand-written kernel for the program on slices, used for a fused operation that
        updates all its state.

    Raises: BadConfig if declarations and parameters differ.
    """

    def declare(function: Callable[..., Any]) -> Source:
        parameters = inspect.signature(function).parameters.values()
        inputs = [one.name for one in parameters if one.kind is not one.KEYWORD_ONLY]
        if set(inputs) != set(declared):
            raise BadConfig(
                f"program {function.__name__} has inputs {', '.join(inputs)} and declares "
                f"{', '.join(declared)}: declare each input once"
            )
        return Source(function, {name: declared[name] for name in inputs}, kernel)

    return declare


class FusedProgram:
    """A graph with layouts. Transformations change it in place, and return names of new nodes."""

    def __init__(
        self, name: str, graph: fx.Graph, known: Callable[[Mapping[str, Tensor]], None] | None
    ) -> None:
        self.name, self.known = name, known
        self.graph = graph
        _finish(graph)

    def copy(self) -> "FusedProgram":
        """A program of its own, with the same names of nodes."""
        return FusedProgram(self.name, _copied(self.graph), self.known)

    @property
    def inputs(self) -> dict[str, Layout]:
        """The layouts of all inputs by name."""
        return {n.name: layout_of(n) for n in self.graph.nodes if n.op == "placeholder"}

    @property
    def outputs(self) -> list[fx.Node]:
        """The nodes whose values the program returns, in order."""
        found: Any = self.graph.output_node().args[0]
        return list(found)

    def named(self, operation: str) -> list[str]:
        """The names of all nodes of an operation, such as "all_reduce" or "mm", in order."""
        return [node.name for node in self.graph.nodes if operation_of(node) == operation]

    # --- transformations ----------------------------------------------------------------------

    def split(self, name: str, dim: int = 0) -> tuple[str, str]:
        """An all-reduce becomes a reduce-scatter along `dim`, then an all-gather.

        Returns their names. Raises, as all transformations: BadConfig naming node and rule, and
        the program stays as it was.
        """
        with self._edited() as graph:
            return transformations.split(graph, name, dim)

    def reorder(self, name: str, *only: str) -> list[str]:
        """Compute the users of an all-gather on slices, and gather their results.

        only: the nodes to compute on slices; by default all that depend on the gather. Returns the
        names of the new gathers.
        """
        with self._edited() as graph:
            return transformations.reorder(graph, name, only)

    def as_slice(self, *names: str) -> None:
        """Keep slices only of inputs whose other elements the program does not read."""
        with self._edited() as graph:
            for name in names:
                transformations.as_slice(graph, name)

    def fuse(self, scatter: str, gather: str) -> list[str]:
        """Carry out a reduce-scatter, the elementwise operations on its slices and one all-gather
        as one operation. Returns the names of its nodes."""
        with self._edited() as graph:
            return grouping.fuse(graph, scatter, gather)

    def overlap(self, producer: str, gather: str, pieces: int) -> None:
        """Compute the operand of a fused operation in pieces of rows, and begin the operation on
        each as soon as it is there. `gather`: the last node of the fused operation."""
        with self._edited() as graph:
            grouping.overlap(graph, producer, gather, pieces)

    @contextmanager
    def _edited(self) -> Iterator[fx.Graph]:
        graph = _copied(self.graph)
        yield graph
        _finish(graph)
        self.graph = graph

    # --- what it says -------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """One line per node; equal programs have equal texts."""
        return "\n".join([f"program {self.name}", *map(_line, self.graph.nodes)])

    @property
    def fingerprint(self) -> str:
        """A digest of the text."""
        return blake2b(self.text.encode(), digest_size=16).hexdigest()


def operation_of(node: fx.Node) -> str:
    """The name of a node's operation: "all_reduce", "mul"; "input" and "output"."""
    if node.op != "call_function":
        return "input" if node.op == "placeholder" else node.op
    return str(node.target).removeprefix("aten.").removeprefix("dlcp_program.").split(".")[0]


def _line(node: fx.Node) -> str:
    if node.op == "output":
        return f"return {node.args[0]}"
    value = node.meta["val"]
    kind = f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else "several"
    fused = f" in {node.meta['fused']}" if "fused" in node.meta else ""
    pieces = f" after {node.meta['pieces']}" if "pieces" in node.meta else ""
    options = "".join(f", {name}={value}" for name, value in node.kwargs.items())
    arguments = ", ".join(map(str, node.args))
    return (
        f"{node.name} = {operation_of(node)}({arguments}{options}): {kind} "
        f"{layout_of(node)}{fused}{pieces}"
    )


def _finish(graph: fx.Graph) -> None:
    """Infer layouts, and drop nodes without a user. Raises: BadConfig."""
    kept = ("placeholder", "output")
    graph.eliminate_dead_code(lambda node: node.op in kept or node.target is UPDATE)
    infer(graph)
    graph.lint()


def _copied(graph: fx.Graph) -> fx.Graph:
    copy = fx.Graph()
    copy.output(copy.graph_copy(graph, {}))
    for one, two in zip(copy.nodes, graph.nodes, strict=True):
        one.name = two.name  # fx gives an input another name if it is that of a built-in function
    return copy


def _traced(
    function: Callable[..., Any], examples: Mapping[str, Tensor], constants: Mapping[str, Any]
) -> fx.Graph:
    """The graph; its placeholders have the inputs' names, and its output is a list of nodes."""

    def called(*tensors: Tensor) -> list[Tensor]:
        with UserLines():
            results = function(*tensors, **constants)
        listed = list(results) if isinstance(results, (tuple, list)) else [results]
        if not listed or not all(isinstance(one, Tensor) for one in listed):
            raise BadConfig(
                f"program {function.__name__} must return tensors, and returned "
                f"{type(results).__name__}"
            )
        return listed

    try:
        with preserve_node_meta():
            traced = make_fx(called, tracing_mode="fake")(*examples.values())
    except BadConfig:
        raise
    except Exception as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if "allow_non_fake_inputs" in said:
            said = "it uses a tensor from outside: make it an input"
        raise BadConfig(
            f"program {function.__name__} cannot be traced{place_of(error)}: {said}; branches and "
            "shapes must not depend on values"
        ) from error
    inputs = [node for node in traced.graph.nodes if node.op == "placeholder"]
    # "{name}_1" is free of conflicts until all inputs have their names
    for node, name in zip(inputs, examples, strict=True):
        node.name, node.target = name, name
    for node in traced.graph.nodes:
        node.meta = {"val": node.meta.get("val"), "line": line_of(node)}
    return traced.graph
