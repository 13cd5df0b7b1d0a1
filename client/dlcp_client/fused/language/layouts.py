"""Layouts: what each rank holds of a value; and the rule of each operation about them."""

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import fx

from dlcp_client.quantities import whole
from dlcpd.contract.errors import BadConfig

from .operations import (
    ALL_GATHER,
    ALL_REDUCE,
    BROADCAST,
    DROPOUT,
    OWN,
    RECEIVE,
    REDUCE_SCATTER,
    SEND,
    UPDATE,
)

aten = torch.ops.aten
SUM: Final = aten.sum.default
NORM: Final = aten.linalg_vector_norm.default
MM: Final = aten.mm.default
CAST: Final = aten._to_copy.default  # noqa: SLF001  # ATen's name of `Tensor.to`
# Operations on rows, by the dimensions that they need whole; the second keep them as 1.
ROWS: Final = (aten._softmax.default, aten._log_softmax.default)  # noqa: SLF001  # names of ATen
REDUCED_ROWS: Final = (aten.sum.dim_IntList, aten.mean.dim, aten.amax.default)


@dataclass(frozen=True, slots=True)
class Layout:
    """How the ranks hold a value. `dim`: the dimension that is sliced.

    Raises: BadConfig.
    """

    kind: str
    dim: int = -1

    def __post_init__(self) -> None:
        if self.kind == "sliced":
            object.__setattr__(self, "dim", whole("sliced dim", self.dim))
        elif self.kind not in ("local", "replicated") or self.dim != -1:
            raise BadConfig(
                f"layout {self.kind!r:.40} is not known: use local, replicated or sliced(dim)"
            )

    def __str__(self) -> str:
        return f"sliced({self.dim})" if self.kind == "sliced" else self.kind


local: Final = Layout("local")  # each rank has all elements, with values of its own
replicated: Final = Layout("replicated")  # each rank has all elements, with equal values


def sliced(dim: int = 0) -> Layout:
    """Rank i has the rows from `bounds`' i-th number to the next, along `dim`."""
    return Layout("sliced", dim)


def bounds(size: int, ranks: int) -> list[int]:
    """Where the slices of a dimension begin, and its end: they differ by at most one row."""
    return [rank * size // ranks for rank in range(ranks + 1)]


def layout_of(node: fx.Node) -> Layout:
    """The layout that inference gave to a node."""
    layout: Layout = node.meta["layout"]
    return layout


def shape_of(node: fx.Node) -> tuple[int, ...]:
    """The global shape."""
    return tuple(node.meta["val"].shape)


def is_sliced(node: fx.Node) -> bool:
    """Whether ranks have slices of it."""
    layout = node.meta.get("layout")
    return layout is not None and layout.kind == "sliced"


def pointwise(node: fx.Node) -> bool:
    """Whether each element of the result depends on the elements at its own place only."""
    if node.target in (CAST, DROPOUT):
        return True
    return (
        isinstance(node.target, torch._ops.OpOverload)  # noqa: SLF001  # the type of aten's names
        and torch.Tag.pointwise in node.target.tags
    )


def refused(node: fx.Node, rule: str) -> BadConfig:
    """An error that names a node, the user's line that made it, and the rule."""
    where = node.meta.get("line", "")
    return BadConfig(f"node {node.name}{f' ({where})' if where else ''}: {rule}")


def infer(graph: fx.Graph) -> None:
    """Set the layout and the stage of every node. Inputs have their layouts.

    Raises: BadConfig naming node, line and rule.
    """
    updated: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "placeholder":
            node.meta["stage"] = None  # inputs are where they are read
            _check_dim(node, layout_of(node).dim)
        elif node.op == "call_function":
            node.meta["stage"] = _stage(node)
            node.meta["layout"] = RULES.get(node.target, _other)(node)
            if node.target is UPDATE:
                if node.args[0] in updated:
                    raise refused(node, f"{node.args[0]} is updated twice: combine the updates")
                updated.add(node.args[0])
        elif node.op != "output":
            raise refused(node, "a tensor from outside the program: make it an input")


def aligned(node: fx.Node, operand: fx.Node, dim: int) -> int:
    """The dimension of a broadcast operand that meets dimension `dim` of the result; below 0: it
    has none."""
    return dim - (len(shape_of(node)) - len(shape_of(operand)))


def whole_dims(node: fx.Node) -> list[int]:
    """The dimensions of its input that an operation on rows needs whole."""
    given: Any = node.args[1]
    count = len(shape_of(node.all_input_nodes[0]))
    dims = [given] if isinstance(given, int) else given or range(count)
    return [dim % count for dim in dims]


def pointwise_layout(node: fx.Node, operands: Iterable[tuple[fx.Node, Layout]]) -> Layout:
    """The layout of the result. Raises: BadConfig."""
    pairs, out = list(operands), shape_of(node)
    found: dict[Layout, fx.Node] = {}
    for operand, layout in pairs:
        if layout.kind == "sliced":
            dim = layout.dim + len(out) - len(shape_of(operand))
            if shape_of(operand)[layout.dim] != out[dim]:
                raise refused(node, f"{operand} is broadcast along its sliced dimension: gather it")
            found.setdefault(sliced(dim), operand)
        elif layout == local:
            found.setdefault(local, operand)
    if len(found) > 1:
        (one, first), (two, second), *_ = found.items()
        raise refused(
            node, f"{first} is {one} and {second} is {two}: reduce or gather one of them first"
        )
    if not found:
        return replicated
    [layout] = found
    if layout.kind == "sliced":
        for operand, given in pairs:
            at = aligned(node, operand, layout.dim)
            if given == replicated and at >= 0 and shape_of(operand)[at] > 1:
                raise refused(
                    node,
                    f"{operand} is replicated and the result {layout}: use own({operand}, {at})",
                )
    return layout


# --- rules by operation ----------------------------------------------------------------------


def _operands(node: fx.Node) -> list[tuple[fx.Node, Layout]]:
    return [(one, layout_of(one)) for one in node.all_input_nodes]


def _first(node: fx.Node) -> fx.Node:
    first: Any = node.args[0]
    node_of: fx.Node = first
    return node_of


def _check_dim(node: fx.Node, dim: int) -> None:
    if not -1 <= dim < len(shape_of(node)):
        raise refused(node, f"no dimension {dim} in the shape {list(shape_of(node))} to slice")


def _collective(
    needs: tuple[str, ...], gives: Callable[[fx.Node], Layout]
) -> Callable[[fx.Node], Layout]:
    def rule(node: fx.Node) -> Layout:
        given = layout_of(_first(node))
        if given.kind not in needs:
            name = str(node.target).split(".")[1]
            raise refused(node, f"{name} needs a {needs[0]} tensor, and {_first(node)} is {given}")
        return gives(node)

    return rule


def _to_slice(at: int) -> Callable[[fx.Node], Layout]:
    def gives(node: fx.Node) -> Layout:
        dim: Any = node.args[at]
        if dim < 0:
            raise refused(node, f"slices along dimension {dim}: count dimensions from the first")
        _check_dim(node, dim)
        return sliced(dim)

    return gives


def _update(node: fx.Node) -> Layout:
    target, value = _first(node), node.all_input_nodes[-1]
    if target.op != "placeholder":
        raise refused(node, f"update of {target}, which is not an input of the program")
    one, two = target.meta["val"], value.meta["val"]
    if one.shape != two.shape or one.dtype != two.dtype:
        raise refused(
            node,
            f"update of {target}, {list(one.shape)} {one.dtype}, with {list(two.shape)} "
            f"{two.dtype}: shape and dtype must be equal",
        )
    if layout_of(target) != layout_of(value):
        raise refused(
            node,
            f"update of {target}, which is {layout_of(target)}, with {value}, which is "
            f"{layout_of(value)}: layouts must be equal",
        )
    return layout_of(target)


def _reduction(gives: Callable[[fx.Node], Layout]) -> Callable[[fx.Node], Layout]:
    rule = _collective(("local",), gives)

    def reduced(node: fx.Node) -> Layout:
        dtype = node.meta["val"].dtype
        if node.args[1] == "avg" and not (dtype.is_floating_point or dtype.is_complex):
            raise refused(node, f"an average of {dtype} would round: use sum, or cast")
        return rule(node)

    return reduced


def _dropout(node: fx.Node) -> Layout:
    x, seed = _first(node), node.all_input_nodes[-1]
    value = seed.meta["val"]
    if shape_of(seed) or value.dtype != torch.int64 or layout_of(seed) != replicated:
        raise refused(
            node,
            f"its seed {seed} is {layout_of(seed)}, {list(value.shape)} {value.dtype}: give an "
            f"input that is declared as `integer`",
        )
    if not x.meta["val"].is_floating_point():
        raise refused(node, f"{x} is {x.meta['val'].dtype}: cast it to a float dtype")
    return pointwise_layout(node, _operands(node))


def _matmul(node: fx.Node) -> Layout:
    one, two = (layout_of(operand) for operand in (node.args[0], node.args[1]))  # type: ignore[arg-type]  # fx has wide types
    if "sliced" not in (one.kind, two.kind):
        return local if local in (one, two) else replicated
    if one == sliced(0) and two == replicated:
        return sliced(0)
    if one == replicated and two == sliced(1):
        return sliced(1)
    raise refused(node, f"a product of {one} by {two}: gather the sliced factor first")


def _sum(node: fx.Node) -> Layout:
    given = layout_of(_first(node))
    return local if given.kind == "sliced" else given  # each rank has the sum of its slice


def _rows(node: fx.Node) -> Layout:
    given = layout_of(_first(node))
    if given.kind == "sliced" and not rows_move(node, given.dim):
        raise refused(node, f"it needs dimension {given.dim} whole, and {_first(node)} is {given}")
    return given


def rows_move(node: fx.Node, dim: int) -> bool:
    """Whether an operation on rows can be computed on slices along `dim`."""
    keeps = node.target in ROWS or (len(node.args) > 2 and bool(node.args[2]))
    return keeps and dim not in whole_dims(node)


def _receive(node: fx.Node) -> Layout:
    if _first(node).target is not SEND:
        raise refused(node, f"receive of {_first(node)}, which send_next did not send")
    return layout_of(_first(node))


def _other(node: fx.Node) -> Layout:
    """Any operation of torch: on slices if it is elementwise, else on whole tensors."""
    target: Any = node.target
    if target is not operator.getitem:
        if torch.Tag.nondeterministic_seeded in target.tags:
            raise refused(node, "ranks would draw different numbers: use dropout, or an input")
        if "empty" in target.name():
            raise refused(node, "each rank would have other values, those of its memory: use zeros")
    if pointwise(node):
        return pointwise_layout(node, _operands(node))
    for operand, layout in _operands(node):
        if layout.kind == "sliced":
            raise refused(
                node, f"it is not elementwise, and {operand} is {layout}: use all_gather first"
            )
    return local if local in [layout for _, layout in _operands(node)] else replicated


def _stage(node: fx.Node) -> int | None:
    """The pipeline stage that computes a node. Raises: BadConfig."""
    found: dict[int, fx.Node] = {}
    for operand in node.all_input_nodes:
        if operand.target is SEND and node.target is not RECEIVE:
            raise refused(node, f"it reads {operand}, which is on its way: use receive")
        if operand.meta["stage"] is not None:
            found.setdefault(operand.meta["stage"], operand)
    if len(found) > 1:
        one, two, *_ = found.values()
        raise refused(node, f"{one} and {two} are on different stages: send one of them")
    stage = next(iter(found), None)
    if node.target is RECEIVE:
        return (stage or 0) + 1
    return stage


RULES: Final[dict[Any, Callable[[fx.Node], Layout]]] = {
    ALL_REDUCE: _reduction(lambda _: replicated),
    REDUCE_SCATTER: _reduction(_to_slice(2)),
    ALL_GATHER: _collective(("sliced",), lambda _: replicated),
    OWN: _collective(("replicated",), _to_slice(1)),
    BROADCAST: _collective(("local", "replicated"), lambda _: replicated),
    SEND: lambda node: layout_of(_first(node)),
    RECEIVE: _receive,
    UPDATE: _update,
    DROPOUT: _dropout,
    MM: _matmul,
    SUM: _sum,
    **dict.fromkeys((*ROWS, *REDUCED_ROWS), _rows),
}
