"""The meaning of a program: all ranks in one process, node by node, as the reference for lowering.

It needs no daemon, and transformations may not change what it finds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from dlcp_client.quantities import number, whole
from dlcpd.contract.errors import BadConfig

from .layouts import Layout, bounds, layout_of, refused, shape_of
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
    dropped,
)
from .program import FusedProgram, check_program

Given = Tensor | Sequence[Tensor]  # a whole tensor; of a local input, one per rank
ByRank = list[Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Values after a program: whole tensors; of a local value, one per rank."""

    outputs: list[Given]
    updated: dict[str, Given]  # by name of the input


def simulate(program: FusedProgram, inputs: Mapping[str, Given], ranks: int) -> Outcome:
    """Run a program on `ranks` ranks.

    Raises: BadConfig for a wrong input; AssertionError if ranks have different values of a
    replicated node, which is an error of the rules.
    """
    check_program(program)
    check_mapping("inputs", inputs)
    ranks = whole("ranks", ranks, 1)
    check_roots(program, ranks)
    held: dict[fx.Node, ByRank] = {}
    updated: dict[str, Given] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            held[node] = _given(node, inputs, ranks)
        elif node.op == "call_function":
            held[node] = _meaning(node, held, ranks)
            _assert_replicated(node, held[node])
            if node.target is UPDATE:
                updated[node.args[0].name] = _whole(node, held)
    return Outcome([_whole(node, held) for node in program.outputs], updated)


def check(
    original: FusedProgram,
    changed: FusedProgram,
    inputs: Mapping[str, Given],
    ranks: int,
    rtol: float = 0.0,
) -> None:
    """Raises: BadConfig if the programs differ in an output or an update, by more than `rtol` of
    the largest element."""
    rtol = number("rtol", rtol)
    right, found = (simulate(one, inputs, ranks) for one in (original, changed))
    if right.updated.keys() != found.updated.keys():
        raise BadConfig(f"{changed.name} updates other inputs than {original.name}")
    if len(right.outputs) != len(found.outputs):
        raise BadConfig(f"{changed.name} returns another number of tensors than {original.name}")
    pairs = [
        (f"output {at}", *pair)
        for at, pair in enumerate(zip(right.outputs, found.outputs, strict=True))
    ]
    pairs += [(name, right.updated[name], found.updated[name]) for name in right.updated]
    for name, one, two in pairs:
        values = _listed(one), _listed(two)
        alike = len(values[0]) == len(values[1])
        if not alike or not all(_close(*pair, rtol) for pair in zip(*values, strict=True)):
            raise BadConfig(
                f"{name} of {changed.name} differs from that of {original.name} on {ranks} "
                f"ranks: report this with both programs' text"
            )


def index_of(shape: Sequence[int], layout: Layout, rank: int, ranks: int) -> Tensor:
    """The global indices of a rank's elements."""
    count = 1
    for size in shape:
        count *= size
    return part(torch.arange(count).view(tuple(shape)), layout, rank, ranks)


def part(x: Tensor, layout: Layout, rank: int, ranks: int) -> Tensor:
    """The elements of a whole tensor that a rank holds."""
    if layout.kind != "sliced":
        return x
    cuts = bounds(x.shape[layout.dim], ranks)
    return x.narrow(layout.dim, cuts[rank], cuts[rank + 1] - cuts[rank]).contiguous()


def check_input(node: fx.Node, x: Any) -> Tensor:
    """Raises: BadConfig if x is not the whole tensor of an input."""
    like = node.meta["val"]
    if not isinstance(x, Tensor) or x.shape != like.shape or x.dtype != like.dtype:
        given = f"{list(x.shape)} {x.dtype}" if isinstance(x, Tensor) else type(x).__name__
        raise BadConfig(
            f"input {node.name} is {given}: the program needs {list(like.shape)} {like.dtype}"
        )
    if x.device.type != "cpu" or x.layout != torch.strided:
        raise BadConfig(f"input {node.name} is {x.layout} on {x.device}: make it dense, on the CPU")
    return x


def check_mapping(what: str, given: Any) -> None:
    """Raises: BadConfig unless it has tensors by name."""
    if not isinstance(given, Mapping):
        raise BadConfig(f"{what}={given!r:.40} is not valid: give a dict of tensors by name")


def check_roots(program: FusedProgram, ranks: int) -> None:
    """Raises: BadConfig naming a broadcast from a rank that is not there."""
    for node in program.graph.nodes:
        if node.target is BROADCAST and node.args[1] >= ranks:
            raise refused(node, f"there is no rank {node.args[1]} among {ranks}")


def check_names(program: FusedProgram, given: Mapping[str, Any], needed: Sequence[str]) -> None:
    """Raises: BadConfig unless exactly these inputs are given."""
    if strange := [name for name in given if name not in needed]:
        raise BadConfig(f"{program.name} has no input {strange[0]!r} to give: {', '.join(needed)}")
    if lacking := [name for name in needed if name not in given]:
        raise BadConfig(f"{program.name} needs input {lacking[0]!r}: give {', '.join(needed)}")


def _given(node: fx.Node, inputs: Mapping[str, Given], ranks: int) -> ByRank:
    layout = layout_of(node)
    if node.name not in inputs:
        raise BadConfig(f"input {node.name} is missing")
    given = inputs[node.name]
    if layout.kind == "local":
        if not isinstance(given, Sequence) or len(given) != ranks:
            raise BadConfig(f"input {node.name} is local: give a list of {ranks} tensors")
        return [check_input(node, one) for one in given]
    whole = check_input(node, given)
    return [part(whole, layout, rank, ranks) for rank in range(ranks)]


def _meaning(node: fx.Node, held: Mapping[fx.Node, ByRank], ranks: int) -> ByRank:
    first: Any = node.args[0] if node.args else None
    x: ByRank = held[first] if isinstance(first, fx.Node) else []
    match node.target:
        case target if target is ALL_REDUCE:
            return [_reduced(x, node.args[1])] * ranks
        case target if target is REDUCE_SCATTER:
            whole = _reduced(x, node.args[1])
            return [part(whole, layout_of(node), rank, ranks) for rank in range(ranks)]
        case target if target is ALL_GATHER:
            return [torch.cat(x, layout_of(first).dim)] * ranks
        case target if target is OWN:
            return [part(x[rank], layout_of(node), rank, ranks) for rank in range(ranks)]
        case target if target is BROADCAST:
            return [_of_root(x, node)] * ranks
        case target if target in (SEND, RECEIVE):
            return x
        case target if target is UPDATE:
            return held[node.args[1]]  # type: ignore[index]  # a node
    return [_alone(node, held, rank, ranks) for rank in range(ranks)]


def _alone(node: fx.Node, held: Mapping[fx.Node, ByRank], rank: int, ranks: int) -> Any:
    arguments: Any = fx.node.map_arg((node.args, node.kwargs), lambda one: held[one][rank])
    args: Any = arguments[0]
    kwargs: Any = arguments[1]
    if node.target is DROPOUT:
        return dropped(
            args[0], args[1], args[2], index_of(shape_of(node), layout_of(node), rank, ranks)
        )
    target: Any = node.target
    return target(*args, **kwargs)


def _reduced(x: ByRank, op: Any) -> Tensor:
    """In the order of ranks, as engines do."""
    total: Tensor = x[0].clone()
    for other in x[1:]:
        total = total + other
    return total / len(x) if op == "avg" else total


def _of_root(x: ByRank, node: fx.Node) -> Tensor:
    root: Any = node.args[1]
    found: Tensor = x[root]
    return found


def _whole(node: fx.Node, held: Mapping[fx.Node, ByRank]) -> Given:
    layout, values = layout_of(node), held[node]
    if layout.kind == "local":
        return values
    whole: Tensor = torch.cat(values, layout.dim) if layout.kind == "sliced" else values[0]
    return whole


def _assert_replicated(node: fx.Node, values: ByRank) -> None:
    if layout_of(node).kind == "replicated" and isinstance(values[0], Tensor):
        for other in values[1:]:
            if other is not values[0] and not _close(values[0], other, 0.0):
                raise AssertionError(f"ranks have different values of {node}, which is replicated")


def _listed(x: Given) -> Sequence[Tensor]:
    return [x] if isinstance(x, Tensor) else x


def _close(one: Tensor, two: Tensor, rtol: float) -> bool:
    if one.shape != two.shape or one.dtype != two.dtype:
        return False
    if not rtol or not one.is_floating_point():
        return bool(((one == two) | (one.isnan() & two.isnan())).all())
    if not one.numel():
        return True
    most = one.nan_to_num().abs().max().item()
    return torch.allclose(one, two, rtol=rtol, atol=rtol * most, equal_nan=True)
