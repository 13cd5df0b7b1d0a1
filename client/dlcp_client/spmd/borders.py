"""Manual regions in a captured graph: their borders, their collectives, the nodes inside.

A region begins with an `enter` per argument, from a tensor of the whole to one of a shard, and ends
with a `leave` per result. Autograd makes the gradient of one of the other. All nodes between see
shards: they are copied, not divided.
"""

from typing import Any, Final

import torch
from torch import Tensor, fx

from dlcp_client.user_lines import line_of
from dlcpd.contract.errors import BadConfig

from .marks import MARK
from .private_torch import descriptors
from .random_bits import BITS
from .tied import output_nodes


def _planned(x: Tensor, shape: list[int]) -> Tensor:
    """The tensor's shape is all that a capture needs: a divided graph has no such call."""
    return x.new_empty(shape)


@torch.library.custom_op("dlcp_spmd::enter", mutates_args=())
def enter(x: Tensor, number: int, shape: list[int], back: bool) -> Tensor:  # the form of an op
    """This rank's shard, of `shape`. `number`: of the annotation in the list of the capture;
    `back`: of a gradient that comes to a result."""
    return _planned(x, shape)


@torch.library.custom_op("dlcp_spmd::leave", mutates_args=())
def leave(y: Tensor, number: int, shape: list[int], back: bool) -> Tensor:  # the form of an op
    """The whole tensor of the shards. `back`: of a gradient of an argument, a partial sum over the
    axes that do not divide the argument."""
    return _planned(y, shape)


@torch.library.custom_op("dlcp_spmd::collective", mutates_args=())
def collective(x: Tensor, kind: str, axis: str, dims: list[int], parts: int) -> Tensor:
    """A collective that a user calls; `dims`: its options, see `manual`; `parts`: of the axis."""
    return _planned(x, _shape(x, kind, dims, parts))


@torch.library.custom_op("dlcp_spmd::axis_index", mutates_args=())
def axis_index(axis: str) -> Tensor:
    """This rank's place along an axis."""
    return torch.zeros((), dtype=torch.int64)


def _shape(x: Tensor, kind: str, dims: list[int], parts: int) -> list[int]:
    shape = list(x.shape)
    if kind in ("all_gather", "all_to_all"):
        shape[dims[0]] *= parts
    if kind in ("reduce_scatter", "all_to_all"):
        shape[dims[-1]] //= parts
    return shape


enter.register_fake(lambda x, number, shape, back: x.new_empty(shape))
leave.register_fake(lambda y, number, shape, back: y.new_empty(shape))
collective.register_fake(
    lambda x, kind, axis, dims, parts: x.new_empty(_shape(x, kind, dims, parts))
)
axis_index.register_fake(lambda axis: torch.empty((), dtype=torch.int64))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.shape, ctx.number, ctx.options = list(inputs[0].shape), inputs[1], inputs[1:]


def _of_collective(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    kind, axis, dims, parts = ctx.options
    dims = [-dims[0]] if kind == "shift" else dims[::-1]
    return collective(gradient, ADJOINT[kind], axis, dims, parts), None, None, None, None


ADJOINT: Final = {
    "all_reduce": "all_reduce",
    "all_gather": "reduce_scatter",
    "reduce_scatter": "all_gather",
    "all_to_all": "all_to_all",
    "shift": "shift",
}
enter.register_autograd(
    lambda ctx, gradient: (leave(gradient, ctx.number, ctx.shape, True), None, None, None),
    setup_context=_setup,
)
leave.register_autograd(
    lambda ctx, gradient: (enter(gradient, ctx.number, ctx.shape, True), None, None, None),
    setup_context=_setup,
)
collective.register_autograd(_of_collective, setup_context=_setup)
ENTER: Final = torch.ops.dlcp_spmd.enter.default
LEAVE: Final = torch.ops.dlcp_spmd.leave.default
COLLECTIVE: Final = torch.ops.dlcp_spmd.collective.default
INDEX: Final = torch.ops.dlcp_spmd.axis_index.default


def nodes_inside(graph: fx.Graph) -> frozenset[fx.Node]:
    """The nodes of manual regions, with every `enter` and without every `leave`.

    Raises: BadConfig naming the line that reads a tensor across a border.
    """
    inside: set[fx.Node] = set()
    constant: set[fx.Node] = set()  # depends on no input
    for node in graph.nodes:
        given = node.all_input_nodes
        reads = not inside.isdisjoint(given) and node.op != "output"
        if node.target in (ENTER, COLLECTIVE, INDEX) or (reads and node.target != LEAVE):
            inside.add(node)
        elif node.op == "call_function" and constant.issuperset(given) and node.target != BITS:
            constant.add(node)
    _check_results(graph.output_node(), inside)
    for node in graph.nodes:
        if node.target == ENTER:
            _check_entered(node, inside)
        elif node in inside:
            _check_inside(node, inside, constant)
    return frozenset(inside)


def _check_results(out: fx.Node, inside: set[fx.Node]) -> None:
    for desc, one in zip(out.meta["desc"], output_nodes(out), strict=True):
        if one is not None and one in inside and isinstance(desc, descriptors.PlainAOTOutput):
            raise BadConfig(
                f"a tensor of a manual region leaves it at {_line(one)}: return it from the "
                "region's function, and annotate it in outputs="
            )


def _check_entered(node: fx.Node, inside: set[fx.Node]) -> None:
    if not inside.isdisjoint(node.all_input_nodes):
        raise BadConfig(
            f"a tensor of a manual region enters another one at {_line(node)}: return it from the "
            "first region's function"
        )


def _check_inside(node: fx.Node, inside: set[fx.Node], constant: set[fx.Node]) -> None:
    if node.target == MARK:
        raise BadConfig(
            f"mesh_split or keep_whole inside a manual region at {_line(node)}: a region sees "
            "shards, use it outside"
        )
    for one in node.all_input_nodes:
        if one not in inside and one not in constant:
            if _is_drawn(one):
                raise _random(node)
            raise BadConfig(
                f"a manual region reads a tensor that is not an argument at {_line(node)}: give "
                f"{one.name} to the region's function, and annotate it in inputs="
            )
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        raise _random(node)


def _is_drawn(node: fx.Node) -> bool:
    """Whether a tensor depends on random bits."""
    waiting, seen = [node], set[fx.Node]()
    while waiting:
        one = waiting.pop()
        if one.target == BITS:
            return True
        if one not in seen:
            seen.add(one)
            waiting += one.all_input_nodes
    return False


def _random(node: fx.Node) -> BadConfig:
    return BadConfig(
        f"random numbers inside a manual region at {_line(node)} depend on the rank: make them "
        "outside, and give them to the region's function"
    )


def _line(node: fx.Node) -> str:
    return line_of(node) or "unknown line"
