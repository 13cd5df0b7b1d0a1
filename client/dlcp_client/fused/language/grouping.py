"""Fused operations: nodes of a program that ranks carry out as one operation, and its pieces.

The same contract as transformations.py.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from torch import fx

from dlcp_client.quantities import is_whole
from dlcpd.contract.errors import BadConfig

from .layouts import MM, is_sliced, pointwise, refused, shape_of
from .operations import ALL_GATHER, DROPOUT, OWN, REDUCE_SCATTER, UPDATE
from .transformations import find, value_of_update

MAX_PIECES: Final = 256  # operations in flight at once: each takes two lane messages


def fuse(graph: fx.Graph, scatter: str, gather: str) -> list[str]:
    """See `FusedProgram.fuse`."""
    begin = find(graph, scatter, REDUCE_SCATTER, "a fused operation begins with a reduce_scatter")
    end = find(graph, gather, ALL_GATHER, "a fused operation ends with an all_gather")
    region = _region(begin)
    if end.all_input_nodes[0] not in region:
        raise refused(end, f"it does not gather what is computed from {begin}")
    if end.meta["val"].dtype != begin.meta["val"].dtype:
        raise refused(end, f"it gathers another dtype than {begin} reduces: cast outside of it")
    if not end.meta["val"].numel():
        raise refused(end, "it has no elements: there is nothing to compute in one operation")
    for node in region:
        _check_inside(node, begin)
        _check_users(node, region, end)
    inside = set(region)
    for node in region:
        for operand in node.all_input_nodes:
            if operand not in inside and node is not begin and (bad := _depends(operand, inside)):
                raise refused(
                    operand, f"a cycle: it needs {bad}, and {node} of the same operation needs it"
                )
    for node in _needed(graph, region, end):
        end.prepend(node)  # the operation is carried out at its gather
    for node in (*region, end):
        node.meta["fused"] = end.name
    return [node.name for node in fused(graph, end.name)]


def _region(begin: fx.Node) -> list[fx.Node]:
    """All nodes on slices that are connected with `begin` by slices; `own` is an edge."""
    found, frontier = {begin: None}, [begin]
    while frontier:
        node = frontier.pop()
        near = [*node.users, *(node.all_input_nodes if node is not begin else ())]
        for other in near:
            if other in found or other.op != "call_function" or other.target in (OWN, UPDATE):
                continue
            if is_sliced(other):
                found[other] = None
                frontier.append(other)
    return list(found)


def _check_inside(node: fx.Node, begin: fx.Node) -> None:
    if node is begin:
        return
    if node.target is REDUCE_SCATTER:
        raise refused(node, f"its slices meet those of {begin}: one operation reduces once")
    if not pointwise(node):
        raise refused(node, "it is not elementwise: a fused operation computes any part by itself")
    if shape_of(node) != shape_of(begin):
        raise refused(
            node,
            f"its shape {list(shape_of(node))} is not that of {begin}, {list(shape_of(begin))}",
        )
    if "fused" in node.meta:
        raise refused(node, f"it is part of {node.meta['fused']} already")


def _check_users(node: fx.Node, region: Sequence[fx.Node], end: fx.Node) -> None:
    """What leaves the operation: the result of `end`, and updates of state that is sliced."""
    for user in node.users:
        if user in region or user is end or user.target is UPDATE:
            continue
        if user.op == "output":
            raise refused(node, "the program returns its slices: update an input with them")
        if user.target is ALL_GATHER:
            raise refused(user, f"one operation gathers once, and {end} does: use as_slice")
        raise refused(user, f"it needs all slices of {node} before the operation has ended")
    for operand in node.all_input_nodes:
        if operand.op == "placeholder" and is_sliced(operand):
            if shape_of(operand) != shape_of(end):
                raise refused(node, f"{operand} has slices of another shape than {end}")
            for user in operand.users:
                if user not in region and not (
                    user.target is UPDATE and value_of_update(user) in region
                ):
                    raise refused(user, f"{operand} has its slices in {end}: read it there only")


def _needed(graph: fx.Graph, region: Sequence[fx.Node], end: fx.Node) -> list[fx.Node]:
    """The nodes behind `end` that the region has or needs, in order."""
    needed, behind = set(region), list[fx.Node]()
    for node in reversed(graph.nodes):
        if node is end:
            break
        if node in needed:
            behind.append(node)
            needed.update(node.all_input_nodes)
    return behind[::-1]


def _depends(node: fx.Node, on: set[fx.Node]) -> fx.Node | None:
    """A node of `on` that `node` needs."""
    seen, frontier = set[fx.Node](), [node]
    while frontier:
        one = frontier.pop()
        if one in on:
            return one
        if one not in seen:
            seen.add(one)
            frontier += one.all_input_nodes
    return None


def overlap(graph: fx.Graph, producer: str, gather: str, pieces: int) -> None:
    """See `FusedProgram.overlap`."""
    node = find(graph, producer)
    end = next((one for one in graph.nodes if one.name == gather), None)
    if end is None or end.meta.get("fused") != gather:
        raise BadConfig(f"{gather!r:.80} is not a fused operation: fuse first, and give its gather")
    begin = next(one for one in fused(graph, gather) if one.target is REDUCE_SCATTER)
    if begin.all_input_nodes[0] is not node:
        raise refused(node, f"{begin} does not read it: overlap needs a producer and its consumer")
    if "pieces" in end.meta:
        raise refused(end, f"it overlaps with {node} already")
    if len(node.users) > 1:
        other = next(user for user in node.users if user is not begin)
        raise refused(other, f"it reads all of {node}, which {begin} reads in pieces")
    if node.target is not MM and (node.target is DROPOUT or not pointwise(node)):
        raise refused(node, "rows of it cannot be computed alone: a product or elementwise only")
    rows = shape_of(node)[0] if shape_of(node) else 1
    if not is_whole(pieces, 2, MAX_PIECES) or rows % pieces:
        said = f"{pieces!r:.40} pieces of {rows} rows: give a divisor from 2 to {MAX_PIECES}"
        raise refused(node, said)
    end.meta["pieces"] = (node.name, int(pieces))


def fused(graph: fx.Graph, gather: str) -> Iterator[fx.Node]:
    """The nodes of a fused operation, in order."""
    return (node for node in graph.nodes if node.meta.get("fused") == gather)
