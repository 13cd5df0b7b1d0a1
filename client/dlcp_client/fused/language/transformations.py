"""Transformations of a program's graph that keep the meaning of its outputs and updates.

Each raises BadConfig naming the node and the rule where the meaning would change. The caller gives
a copy of its graph, so it can drop one that is half rewritten.
"""

from collections.abc import Sequence
from typing import Any

from torch import fx

from dlcp_client.quantities import is_whole
from dlcpd.contract.errors import BadConfig

from .layouts import (
    NORM,
    REDUCED_ROWS,
    ROWS,
    SUM,
    Layout,
    aligned,
    aten,
    layout_of,
    local,
    pointwise,
    refused,
    replicated,
    rows_move,
    shape_of,
    sliced,
)
from .operations import ALL_GATHER, ALL_REDUCE, OWN, RECEIVE, REDUCE_SCATTER, SEND, UPDATE


def find(graph: fx.Graph, name: str, target: Any = None, what: str = "") -> fx.Node:
    """The node of a name, of this operation. Raises: BadConfig."""
    node: fx.Node | None = next((one for one in graph.nodes if one.name == name), None)
    if node is None:
        names = ", ".join(one.name for one in graph.nodes if one.op != "output")
        raise BadConfig(f"the program has no node {name!r:.80}: its nodes are {names:.400}")
    if "fused" in node.meta:
        raise refused(node, f"it is part of {node.meta['fused']}: transform before fuse")
    if target is not None and node.target is not target:
        raise refused(node, what)
    return node


def split(graph: fx.Graph, name: str, dim: int) -> tuple[str, str]:
    """See `FusedProgram.split`."""
    reduce = find(graph, name, ALL_REDUCE, "only an all_reduce can be split")
    if not is_whole(dim, 0, len(shape_of(reduce)) - 1):
        shape = list(shape_of(reduce))
        raise refused(reduce, f"its shape {shape} has no dimension {dim!r:.40} to slice")
    scatter = _new(reduce, REDUCE_SCATTER, (*reduce.args, int(dim)), sliced(dim))
    gather = _new(reduce, ALL_GATHER, (scatter,), replicated)
    reduce.replace_all_uses_with(gather)
    graph.erase_node(reduce)
    return scatter.name, gather.name


# --- reorder ---------------------------------------------------------------------------------


def reorder(graph: fx.Graph, name: str, only: Sequence[str]) -> list[str]:
    """See `FusedProgram.reorder`."""
    gather = find(graph, name, ALL_GATHER, "only an all_gather can be reordered")
    chosen = {find(graph, one) for one in only}
    moved = _moved(graph, gather, chosen)
    if missed := [node for node in chosen if node not in moved]:
        raise refused(missed[0], f"it does not depend on slices of {gather}")
    if all(node is gather or node.target is UPDATE for node in moved):
        raise refused(gather, "no operation reads it: there is nothing to reorder")
    return _Reordering(graph, gather, moved).made()


def _moved(graph: fx.Graph, gather: fx.Node, chosen: set[fx.Node]) -> dict[fx.Node, int | None]:
    """The nodes to compute on slices, by the dimension of these; None: a number of all slices.

    Updates are among them: those who read one read its value, which is the same.
    """
    moved: dict[fx.Node, int | None] = {gather: layout_of(gather.all_input_nodes[0]).dim}
    for node in graph.nodes:
        reads = [one for one in node.all_input_nodes if moved.get(one) is not None]
        if node.op == "output" or not reads:
            continue
        if node.target is UPDATE:
            if node.args[1] in reads:
                moved[node] = moved[node.args[1]]
        elif not chosen or node in chosen:
            moved[node] = _dim_of(node, [(one, _int(moved[one])) for one in reads])
    return moved


def _dim_of(node: fx.Node, reads: list[tuple[fx.Node, int]]) -> int | None:
    """The dimension of the slices of the result. Raises: BadConfig if slices do not give it."""
    if node.target in (NORM, SUM):
        if len(node.args) > 1 or node.kwargs:
            raise refused(node, "only a plain sum or 2-norm is made of those of slices")
        return None
    if node.target in (SEND, RECEIVE):
        return reads[0][1]
    if node.target in (*ROWS, *REDUCED_ROWS):
        if not rows_move(node, reads[0][1]):
            raise refused(node, f"it needs dimension {reads[0][1]} whole")
        return reads[0][1]
    if not pointwise(node):
        raise refused(node, "it is not elementwise: it needs whole tensors")
    return _dim_of_pointwise(node, reads)


def _dim_of_pointwise(node: fx.Node, reads: list[tuple[fx.Node, int]]) -> int:
    for operand in node.all_input_nodes:
        if layout_of(operand) == local:
            raise refused(node, f"it reads {operand}, which is local: no rank has the others'")
    # counted from the last, the dimension is the same for all operands: broadcasting keeps that
    (first, dim), *_ = reads
    at = dim + len(shape_of(node)) - len(shape_of(first))
    for operand, own_dim in reads:
        if shape_of(operand)[own_dim] != shape_of(node)[at]:
            raise refused(node, f"{operand} is broadcast along its sliced dimension")
    return at


class _Reordering:
    """Rewrites the moved nodes to read slices."""

    def __init__(self, graph: fx.Graph, gather: fx.Node, moved: dict[fx.Node, int | None]) -> None:
        self._graph, self._gather, self._moved = graph, gather, moved

    def made(self) -> list[str]:
        """Rewrite; the names of the new gathers."""
        region = [n for n in self._moved if n is not self._gather and n.target is not UPDATE]
        whole = {n: [u for u in n.users if not self._moves(u)] for n in region}
        for update in [n for n in self._moved if n.target is UPDATE]:
            # those who read the update on slices read its value; others go on to read the update
            for user in [u for u in update.users if self._moves(u)]:
                user.replace_input_with(update, value_of_update(update))
        names = []
        for node in region:
            for operand in node.all_input_nodes:
                node.replace_input_with(operand, self._slices(node, operand))
            dim = self._moved[node]
            if dim is None:
                _sum_of_slices(node)
                continue
            node.meta["layout"] = sliced(dim)
            if users := whole[node]:
                with self._graph.inserting_after(node):
                    gathered = _create(self._graph, node, ALL_GATHER, (node,), replicated)
                for user in users:
                    user.replace_input_with(node, gathered)
                names.append(gathered.name)
        _lift(self._graph)
        return names

    def _moves(self, user: fx.Node) -> bool:
        return user in self._moved and user.target is not UPDATE

    def _slices(self, node: fx.Node, operand: fx.Node) -> fx.Node:
        if operand is self._gather:
            return operand.all_input_nodes[0]
        if operand in self._moved:
            return operand
        dim = self._moved[node]
        at = -1 if dim is None else aligned(node, operand, dim)
        if at < 0 or shape_of(operand)[at] == 1:
            return operand
        return _own(self._graph, operand, at)


def value_of_update(update: fx.Node) -> fx.Node:
    """The value that an update writes."""
    return update.all_input_nodes[-1]


def _sum_of_slices(node: fx.Node) -> None:
    """A sum is that of all slices' sums; a norm, the root of that of squares."""
    x: fx.Node = node.all_input_nodes[0]
    if node.target is NORM:
        x = _new(node, aten.mul.Tensor, (x, x), layout_of(x), like=x)
    part = _new(node, SUM, (x,), local)
    result = _new(node, ALL_REDUCE, (part, "sum"), replicated)
    if node.target is NORM:
        result = _new(node, aten.sqrt.default, (result,), replicated)
    node.replace_all_uses_with(result)
    node.graph.erase_node(node)


def _lift(graph: fx.Graph) -> None:
    """own(f(x)) = f(own(x)) for elementwise f: so that inputs are read through own where they can.

    Only where nothing reads f(x) as a whole, and x has the same shape.
    """
    found = True
    while found:
        found = False
        for node in reversed(graph.nodes):
            dims = {user.args[1] for user in node.users if user.target is OWN}
            owned = len(dims) == 1 and all(user.target is OWN for user in node.users)
            if not owned or not _lifts(node):
                continue
            [dim] = dims
            for operand in node.all_input_nodes:
                if shape_of(operand):
                    node.replace_input_with(operand, _own(graph, operand, _int(dim)))
            node.meta["layout"] = sliced(_int(dim))
            for user in list(node.users):
                user.replace_all_uses_with(node)
                graph.erase_node(user)
            found = True
            break


def _lifts(node: fx.Node) -> bool:
    return (
        node.op == "call_function"
        and pointwise(node)
        and all(
            layout_of(one) == replicated and shape_of(one) in ((), shape_of(node))
            for one in node.all_input_nodes
        )
    )


def _own(graph: fx.Graph, x: fx.Node, dim: int) -> fx.Node:
    """own(x, dim), where the graph has it already or directly after x."""
    if x.target is ALL_GATHER and layout_of(x.all_input_nodes[0]).dim == dim:
        return x.all_input_nodes[0]
    for user in x.users:
        if user.target is OWN and user.args[1] == dim:
            return user
    after = x
    if x.op == "placeholder":
        after = [node for node in graph.nodes if node.op == "placeholder"][-1]
    with graph.inserting_after(after):
        return _create(graph, x, OWN, (x, dim), sliced(dim))


# --- state ------------------------------------------------------------------------------------


def as_slice(graph: fx.Graph, name: str) -> None:
    """See `FusedProgram.as_slice`."""
    node = find(graph, name)
    if node.op != "placeholder" or layout_of(node) != replicated or not shape_of(node):
        raise refused(node, "only a replicated input with dimensions can be kept as slices")
    updates = [user for user in node.users if user.target is UPDATE and user.args[0] is node]
    dims = _dims_read(node, updates)
    if len(dims) != 1:
        raise refused(node, f"it is sliced along {len(dims)} dimensions: exactly one is needed")
    node.meta["layout"] = sliced(dims.pop())
    for user in [user for user in node.users if user.target is OWN]:
        user.replace_all_uses_with(node)
        graph.erase_node(user)
    for update in updates:
        gathered = value_of_update(update)
        for user in list(update.users):
            if user.op != "output":  # the update's value is slices now
                user.replace_input_with(update, gathered)
        update.replace_input_with(gathered, gathered.all_input_nodes[0])


def _dims_read(node: fx.Node, updates: Sequence[fx.Node]) -> set[int]:
    """The dimensions along which an input is read and updated in slices. Raises: BadConfig."""
    dims = set[int]()
    for user in node.users:
        if reader := next((one for one in user.users if "fused" in one.meta), None):
            raise refused(reader, f"it is part of {reader.meta['fused']}: use as_slice before fuse")
        if user in updates:
            source = value_of_update(user)
            if source.target is not ALL_GATHER:
                raise refused(user, f"{node} is updated as a whole: reorder its computation first")
            if "fused" in source.meta:
                raise refused(source, f"{node} is updated by it: use as_slice before fuse")
            dims.add(layout_of(source.all_input_nodes[0]).dim)
        elif user.target is OWN:
            dims.add(_int(user.args[1]))
        else:
            raise refused(user, f"it uses all of {node}: only own may read what becomes slices")
    return dims


# --- new nodes --------------------------------------------------------------------------------


def _new(
    before: fx.Node, target: Any, args: tuple[Any, ...], layout: Layout, like: fx.Node | None = None
) -> fx.Node:
    with before.graph.inserting_before(before):
        return _create(before.graph, like or before, target, args, layout)


def _create(
    graph: fx.Graph, like: fx.Node, target: Any, args: tuple[Any, ...], layout: Layout
) -> fx.Node:
    """A node at the graph's place of insertion, with the shape, dtype and line of another."""
    name = str(target).split(".")[1]
    node = graph.create_node("call_function", target, args, name=name)
    node.meta = {"val": like.meta["val"], "line": like.meta.get("line", ""), "layout": layout}
    return node


def _int(value: Any) -> int:
    return int(value)
