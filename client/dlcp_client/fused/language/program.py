"""Programs: a function of tensors becomes a graph of ATen operations with a layout for each value.

A transformation works on a copy of the graph. So one that is refused changes nothing.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import torch
from torch import Tensor, fx

from dlcpd.contract.errors import BadConfig

from . import grouping, transformations
from .layouts import Layout, infer, layout_of, replicated
from .operations import UPDATE
from .tracing import traced

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
        self.check_constants(constants)
        for name, kind in self.declared.items():
            if isinstance(kind, Number) and name in given:
                raise BadConfig(f"input {name!r} is a number: give its value when the program runs")
        examples = {
            name: self._example(name, given.get(name, shape), dtype) for name in self.declared
        }
        graph = traced(self.function, examples, constants)
        for node in graph.nodes:
            if node.op == "placeholder":
                kind = self.declared[node.name]
                node.meta["layout"] = replicated if isinstance(kind, Number) else kind
        name = self.function.__name__
        known = None if self.known is None else _Bound(self.known, constants)
        return FusedProgram(name, graph, known)

    def check_constants(self, given: Iterable[str]) -> None:
        """Raises: BadConfig unless these are the keyword-only parameters, but for defaults."""
        parameters = inspect.signature(self.function).parameters.values()
        known = {one.name: one.default for one in parameters if one.kind is one.KEYWORD_ONLY}
        names = ", ".join(known) or "it has none"
        if strange := [name for name in given if name not in known]:
            raise BadConfig(
                f"program {self.function.__name__} takes no value {strange[0]!r:.80} here; its "
                f"constants, the keyword-only parameters: {names}"
            )
        empty = inspect.Parameter.empty
        if lacking := [name for name in known if known[name] is empty and name not in given]:
            raise BadConfig(
                f"program {self.function.__name__} has a constant {lacking[0]!r}: give its value"
            )

    def _example(self, name: str, given: Any, dtype: torch.dtype) -> Tensor:
        kind = self.declared[name]
        if isinstance(kind, Number):
            return torch.empty((), dtype=kind.dtype)
        if isinstance(given, Tensor):
            return torch.empty(given.shape, dtype=given.dtype)
        if given is None:
            raise BadConfig(f"input {name!r} has no shape: give {name}=(...) or shape=(...)")
        if not isinstance(dtype, torch.dtype):
            raise BadConfig(f"dtype={dtype!r:.40} is not valid: use a dtype of torch")
        try:
            return torch.empty(tuple(given), dtype=dtype)
        except (TypeError, RuntimeError) as error:
            raise BadConfig(
                f"{given!r:.80} is not the shape of input {name!r}: give a tuple of whole numbers, "
                "0 or more, whose product is a size in memory"
            ) from error


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

    if kernel is not None and not callable(kernel):
        raise BadConfig(f"kernel={kernel!r:.40} is not a function: give one that updates in place")
    for name, kind in declared.items():
        if not isinstance(kind, Layout | Number):
            raise BadConfig(
                f"{name}={kind!r:.40} is not a declaration: use local, replicated, sliced(dim), "
                "scalar or integer"
            )

    def declare(function: Callable[..., Any]) -> Source:
        if not inspect.isfunction(function) and not inspect.ismethod(function):
            raise BadConfig(f"{function!r:.80} is not a function of Python: declare a `def`")
        parameters = inspect.signature(function).parameters.values()
        inputs = [one.name for one in parameters if one.kind is not one.KEYWORD_ONLY]
        if set(inputs) != set(declared):
            raise BadConfig(
                f"program {function.__name__} has inputs {', '.join(inputs)} and declares "
                f"{', '.join(declared)}: declare each input once"
            )
        for one in parameters:
            if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
                raise BadConfig(f"program {function.__name__} has {one}: name each input")
            if one.name in declared and one.default is not one.empty:
                raise BadConfig(
                    f"input {one.name!r} of program {function.__name__} has a default, which no "
                    "run would use: leave it out, or make it a keyword-only constant"
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


def check_program(given: Any) -> None:
    """Raises: BadConfig unless it is a program with shapes."""
    if isinstance(given, Source):
        name = given.function.__name__
        raise BadConfig(f"program {name} has no shapes yet: call it, as {name}(shape=(...))")
    if not isinstance(given, FusedProgram):
        raise BadConfig(f"{given!r:.80} is not a program: give what a function of @program returns")


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
