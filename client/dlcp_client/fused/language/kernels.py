"""Kernels: the operations between a reduction and its gather, as one function of flat pieces.

`FusedRegion` is the function; a kernel runs it: torch's own for a known optimizer, else C++ that
inductor generates, else ATen operations in blocks. Every piece gives the same numbers whatever its
place, since each element depends on elements at its own place only.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

import torch
from torch import Tensor, fx

from dlcpd.contract.errors import BadConfig

from .grouping import fused
from .layouts import aten, shape_of
from .operations import DROPOUT, OWN, REDUCE_SCATTER, UPDATE, dropped
from .program import FusedProgram

_log: Final = logging.getLogger("dlcp_client")
# Elements: 1 MiB of float32, so the operands of an optimizer fit in the second cache, and a call
# of 10 us is small beside 0.4 ms of work.
BLOCK: Final = 1 << 18
KERNELS: Final = ("auto", "torch", "inductor", "eager")


class OperandKind(Enum):
    """The kinds of operands."""

    REDUCED = "reduced"  # a piece of the sums
    STATE = "state"  # a piece of an input that each rank keeps in slices
    WHOLE = "whole"  # a piece of a tensor that every rank has
    NUMBER = "number"


class Operand(NamedTuple):
    """An operand of a region. `node`: gives its value; of the reduced one, the local tensor."""

    kind: OperandKind
    node: fx.Node


@dataclass(frozen=True, slots=True, eq=False)
class FusedRegion:
    """The computation of one fused operation.

    `function`: from the number of the first element and flat operands to flat results: the gathered
    one, then a new value of each of `states`.
    """

    function: fx.GraphModule
    operands: tuple[Operand, ...]
    states: tuple[fx.Node, ...]
    scatter: fx.Node
    gather: fx.Node

    @property
    def weights(self) -> fx.Node | None:
        """The input that is updated with the gathered result."""
        users = [user for user in self.gather.users if user.target is UPDATE]
        return users[0].all_input_nodes[0] if users else None


class FlatPiece(NamedTuple):
    """Elements of an operation from number `first` on. A state is an operand and, in the same
    memory, a result. `numbers`: the program's inputs without dimensions."""

    first: int
    operands: Sequence[Tensor]
    results: Sequence[Tensor]
    numbers: Mapping[str, Tensor]


class Kernel(Protocol):
    """Computes pieces."""

    name: str

    def run(self, piece: FlatPiece) -> None:
        """Write the results."""


def region_of(program: FusedProgram, gather: str) -> FusedRegion:
    """The region of a fused operation, by the name of its gather."""
    nodes = list(fused(program.graph, gather))
    scatter = next(node for node in nodes if node.target is REDUCE_SCATTER)
    end = nodes[-1]
    inside = set(nodes)
    states = [
        user.all_input_nodes[0]
        for node in nodes
        for user in node.users
        if user.target is UPDATE and user not in end.users
    ]
    states = list(dict.fromkeys(states))
    outer = [n for node in nodes if node is not scatter for n in node.all_input_nodes]
    edges = [n for n in dict.fromkeys([scatter, *outer, *states]) if n not in inside - {scatter}]
    graph = fx.Graph()
    first = graph.placeholder("first")
    held = {node: graph.placeholder(f"operand{at}") for at, node in enumerate(edges)}
    given = dict(held)
    for node in nodes:
        if node in (scatter, end):
            continue
        if node.target is DROPOUT:
            arguments: Any = fx.node.map_arg(node.args, lambda one: held[one])
            held[node] = graph.call_function(_dropped_from, (*arguments, first))
        else:
            held[node] = graph.node_copy(node, lambda one: held[one])
    values = [end.all_input_nodes[0], *(_update_of(state) for state in states)]
    results = []
    for value in values:
        made = held[value]
        if value in given:  # a result shares no memory with an operand
            made = graph.call_function(aten.clone.default, (made,))
        results.append(made)
    graph.output(tuple(results))
    function = fx.GraphModule(torch.nn.Module(), graph)
    return FusedRegion(function, tuple(map(_operand, edges)), tuple(states), scatter, end)


def _update_of(state: fx.Node) -> fx.Node:
    update = next(user for user in state.users if user.target is UPDATE and user.args[0] is state)
    return update.all_input_nodes[-1]


def _operand(edge: fx.Node) -> Operand:
    if edge.target is REDUCE_SCATTER:
        return Operand(OperandKind.REDUCED, edge.all_input_nodes[0])
    if edge.target is OWN:
        return Operand(OperandKind.WHOLE, edge.all_input_nodes[0])
    if edge.meta["layout"].kind == "sliced":
        return Operand(OperandKind.STATE, edge)
    return Operand(OperandKind.WHOLE if shape_of(edge) else OperandKind.NUMBER, edge)


def _dropped_from(x: Tensor, p: float, seed: Tensor, first: Any) -> Tensor:
    return dropped(x, p, seed, torch.arange(x.numel()) + first)


# --- the three kernels ------------------------------------------------------------------------


class Eager:
    """ATen operations, block by block."""

    name = "eager"

    def __init__(self, region: FusedRegion) -> None:
        self._function = region.function

    def run(self, piece: FlatPiece) -> None:
        for low in range(0, piece.results[0].numel(), BLOCK):
            given = [_block(one, low) for one in piece.operands]
            made = self._function(piece.first + low, *given)
            for result, one in zip(piece.results, made, strict=True):
                _block(result, low).copy_(one)


class Compiled:
    """C++ of inductor for one block; a shorter one is padded. Not for two threads at once."""

    name = "inductor"

    def __init__(self, region: FusedRegion) -> None:
        """Compile, which takes seconds; inductor keeps the result on disk.

        Raises: what the compiler raises.
        """
        from torch._inductor import config  # noqa: PLC0415  # half a second
        from torch._inductor.compile_fx import compile_fx  # noqa: PLC0415
        from torch.fx.experimental.proxy_tensor import make_fx  # noqa: PLC0415

        self._operands = [_scratch(one) for one in region.operands]
        self._gathered = torch.zeros(BLOCK, dtype=region.gather.meta["val"].dtype)
        self._first = torch.zeros((), dtype=torch.int64)
        at = {one.node: number for number, one in enumerate(region.operands)}
        self._states = [at[state] for state in region.states]

        def in_place(first: Tensor, gathered: Tensor, *operands: Tensor) -> tuple[Tensor, ...]:
            made = region.function(first, *operands)
            for into, one in zip(
                (gathered, *(operands[n] for n in self._states)), made, strict=True
            ):
                into.copy_(one)
            return (gathered,)

        example = (self._first, self._gathered, *self._operands)
        graph = make_fx(in_place)(*example)
        with config.patch(compile_threads=1):  # in this process: no pool of compilers
            compiled: Any = compile_fx(graph, list(example))
            compiled(*example)
        self._call: Callable[..., Any] = compiled

    def run(self, piece: FlatPiece) -> None:
        for low in range(0, piece.results[0].numel(), BLOCK):
            given = [_block(one, low) for one in piece.operands]
            count = _block(piece.results[0], low).numel()
            if count < BLOCK:
                given = [self._padded(*pair) for pair in zip(self._operands, given, strict=True)]
            self._first.fill_(piece.first + low)
            self._call(self._first, self._gathered, *given)
            _block(piece.results[0], low).copy_(self._gathered[:count])
            if count < BLOCK:
                for result, at in zip(piece.results[1:], self._states, strict=True):
                    _block(result, low).copy_(given[at][:count])

    def _padded(self, scratch: Tensor, x: Tensor) -> Tensor:
        if not x.dim():
            return x
        scratch[: x.numel()].copy_(x)
        return scratch


class Hand:
    """torch's kernel of a known optimizer."""

    name = "torch"

    def __init__(self, program: FusedProgram, region: FusedRegion) -> None:
        """Raises: BadConfig if the region is not the whole of a known optimizer."""
        given = {one.node.name for one in region.operands if one.kind is not OperandKind.NUMBER}
        tensors = {n.name for n in program.graph.nodes if n.op == "placeholder" and shape_of(n)}
        updates = [node for node in program.graph.nodes if node.target is UPDATE]
        weights = region.weights
        if (
            program.known is None
            or weights is None
            or given != tensors
            or len(updates) != len(region.states) + 1
        ):
            raise BadConfig(f"torch has no kernel for the operation {region.gather}")
        self._kernel, self._weights = program.known, weights.name
        self._names = [one.node.name for one in region.operands]

    def run(self, piece: FlatPiece) -> None:
        tensors = dict(zip(self._names, piece.operands, strict=True))
        into = piece.results[0]
        if into.data_ptr() != tensors[self._weights].data_ptr():
            into.copy_(tensors[self._weights])
        self._kernel({**tensors, **piece.numbers, self._weights: into})


def _block(x: Tensor, low: int) -> Tensor:
    return x[low : low + BLOCK] if x.dim() else x


def _scratch(operand: Operand) -> Tensor:
    like = operand.node.meta["val"]
    return torch.zeros(BLOCK if operand.kind is not OperandKind.NUMBER else (), dtype=like.dtype)


# --- the choice -------------------------------------------------------------------------------

_said: Final[set[str]] = set()
_compiling: Final = threading.Lock()  # inductor compiles on one thread at a time


def checked_kernel(kernel: str) -> str:
    """`kernel`. Raises: BadConfig if it is not known."""
    if kernel not in KERNELS:
        raise BadConfig(f"kernel {kernel!r:.40} is not known: use {', '.join(KERNELS)}")
    return kernel


def kernel_for(program: FusedProgram, region: FusedRegion, choice: str = "auto") -> Kernel:
    """The kernel of a fused operation: of `choice`, or the first that works of torch, inductor and
    eager. The choice, and why a compiler failed, is said once.

    Raises: BadConfig for an unknown choice, or if torch has no such kernel.
    """
    chosen = build(program, region, checked_kernel(choice))
    _say(logging.INFO, f"{program.name}: {chosen.name} computes before {region.gather}")
    return chosen


def build(program: FusedProgram, region: FusedRegion, choice: str) -> Kernel:
    """As `kernel_for`, of a known choice, and only a compiler that fails is said."""
    if choice == "torch" or (choice == "auto" and program.known is not None):
        try:
            return Hand(program, region)
        except BadConfig:
            if choice == "torch":
                raise
    if choice in ("auto", "inductor"):
        try:
            with _compiling:
                return Compiled(region)
        except Exception as error:  # whatever the compiler raises
            said = (str(error).strip().splitlines() or [type(error).__name__])[0]
            _say(
                logging.WARNING,
                f"{program.name}: inductor cannot compile, so ATen operations compute: {said:.200}",
            )
    return Eager(region)


def _say(level: int, text: str) -> None:
    if text not in _said:
        _said.add(text)
        _log.log(level, text)
