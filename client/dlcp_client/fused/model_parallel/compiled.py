"""A pass over inductor's graphs: products and the collectives next to them become one operator.

DTensor's tensor parallelism makes such graphs. Inductor has a pass of this kind,
`micro_pipeline_tp`, for symmetric memory of GPUs only.
"""

from collections.abc import Sequence
from math import prod
from operator import getitem
from typing import Any, Final

import torch
from torch import fx
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files

from dlcp_client import products
from dlcp_client.fused.model_parallel import operations
from dlcp_client.fused.model_parallel.operations import COLLECTIVES, group_named

aten: Final = torch.ops.aten
WAIT: Final = COLLECTIVES.wait_tensor.default
GATHER: Final = COLLECTIVES.all_gather_into_tensor.default
SUMS: Final = {
    COLLECTIVES.all_reduce.default: torch.ops.dlcp_fused.product_reduced.default,
    COLLECTIVES.reduce_scatter_tensor.default: torch.ops.dlcp_fused.product_scattered.default,
}
GATHERED: Final = torch.ops.dlcp_fused.gathered_products.default
VIEWS: Final = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)  # noqa: SLF001  # torch's name
TRANSPOSED: Final = (aten.permute.default, aten.t.default)


class OverlapPass(CustomGraphPass):
    """Replaces products whose sums, or whose rows, travel over groups of dlcpd.

    It finds `mm` or `addmm` and then an all-reduce or a reduce-scatter of sums along dimension 0,
    and an all-gather along dimension 0 and then such products. Gradients of weights are computed
    while sums travel. Other operations stay as they are.
    """

    def __init__(self, pieces: int) -> None:
        """`pieces`: of each product; 0: by size, and products of one piece stay as they are."""
        self._pieces = pieces

    def uuid(self) -> Any:
        files = [str(module.__file__) for module in (operations, products)]
        return get_hash_for_files((__file__, *files), f"{self._pieces} {products.SMALLEST}")

    def __call__(self, graph: fx.Graph) -> None:
        for wait in graph.find_nodes(op="call_function", target=WAIT):
            collective = wait.args[0]
            if not isinstance(collective, fx.Node) or len(collective.users) > 1:
                continue
            if collective.target in SUMS:
                self._sum(wait, collective)
            elif collective.target is GATHER:
                self._gather(wait, collective)
        graph.lint()

    def _sum(self, wait: fx.Node, collective: Any) -> None:
        value, op, *more = collective.args
        found = _products(value)
        if op != "sum" or not found or not self._gains(_shape(found[0]), found[0], more[-1]):
            return
        added, a, b = zip(*map(_terms, found), strict=True)
        [first, *others] = sorted(added, key=lambda one: one is None)  # at most one has a bias
        if any(others) or (first is not None and len(_shape(first)) != 1):
            return
        others = _independent(collective, wait)
        factors = ([_terms(one)[at] for one in others] for at in (1, 2))
        given = (list(a), list(b), first, *more, self._pieces, *factors)
        graph = wait.graph
        with graph.inserting_before(collective):
            made = _call(graph, SUMS[collective.target], given)
            result, *results = (_call(graph, getitem, (made, n)) for n in range(len(others) + 1))
            shown = _call(graph, aten.reshape.default, (result, _shape(wait)))
        for other, its in zip(others, results, strict=True):
            other.replace_all_uses_with(its)
            graph.erase_node(other)
        wait.replace_all_uses_with(shown)
        _erase(wait)

    def _gather(self, wait: fx.Node, collective: Any) -> None:
        shard, size, group = collective.args
        views = [user for user in wait.users if user.target in VIEWS and _keeps_rows(user)]
        wholes = [wait, *views] if len(_shape(wait)) == 2 else views
        found = [user for whole in wholes for user in whole.users if _multiplies(user, whole)]
        place = next(iter(sorted(wait.users)), wait)  # the first one of the graph
        found = [user for user in found if _comes_before(_terms(user)[2], place)]
        if not found or not self._gains(_shape(wait), wait, group):
            return
        graph, inner = wait.graph, _shape(wait)[-1]
        with graph.inserting_before(place):
            rows = _call(graph, aten.reshape.default, (shard, [-1, inner]))
            given = (rows, [_terms(user)[2] for user in found], size, group, self._pieces)
            made = _call(graph, GATHERED, given)
            whole, *results = (_call(graph, getitem, (made, n)) for n in range(len(found) + 1))
            shown = _call(graph, aten.reshape.default, (whole, _shape(wait)))
        for user, result in zip(found, results, strict=True):
            added = _terms(user)[0]
            with graph.inserting_before(user):
                total = result if added is None else _call(graph, aten.add.Tensor, (result, added))
            user.replace_all_uses_with(total)
            graph.erase_node(user)
        wait.replace_all_uses_with(shown)
        _erase(wait)

    def _gains(self, shape: Sequence[Any], node: fx.Node, group: Any) -> bool:
        """Whether a tensor that travels has several pieces, between ranks of dlcpd."""
        if not isinstance(group, str) or group_named(group) is None:
            return False
        nbytes = prod(shape) * node.meta["val"].element_size()
        return bool(self._pieces or nbytes >= 2 * products.SMALLEST)


def _products(value: Any) -> list[fx.Node]:
    """The products of which `value` is the sum, or a view by rows. None if a part of it is no
    product, or is used elsewhere."""
    if len(value.users) != 1:
        return []
    if _multiplies(value):
        return [value]
    if value.target in VIEWS and _keeps_rows(value):
        return _products(value.args[0])
    if value.target is aten.add.Tensor and not value.kwargs:
        one, two = value.args
        if isinstance(one, fx.Node) and isinstance(two, fx.Node) and _shape(one) == _shape(two):
            left, right = _products(one), _products(two)
            return [*left, *right] if left and right else []
    return []


def _independent(collective: fx.Node, wait: fx.Node) -> list[fx.Node]:
    """Products that are computed before a collective, which does not need them, and used after it:
    gradients of weights. They fill the time of the last sums on their way."""
    needed, frontier = {collective}, [collective]
    while frontier:
        for node in frontier.pop().all_input_nodes:
            if node not in needed:
                needed.add(node)
                frontier.append(node)
    for target in SUMS:  # sums that travel themselves
        for other in wait.graph.find_nodes(op="call_function", target=target):
            needed.update(_products(other.args[0]))
    return [
        node
        for node in wait.graph.find_nodes(op="call_function", target=aten.mm.default)
        if node < collective
        and node not in needed
        and node.users
        and all(user > wait for user in node.users)
    ]


def _keeps_rows(view: fx.Node) -> bool:
    """Whether only the dimensions before the last one are divided or joined."""
    return bool(_shape(view)[-1] == _shape(view.args[0])[-1])


def _multiplies(node: fx.Node, factor: fx.Node | None = None) -> bool:
    """Whether it is a product of matrices, and `factor` its first factor and nothing else."""
    if node.target not in (aten.mm.default, aten.addmm.default) or node.kwargs:
        return False
    added, a, b = _terms(node)
    return factor is None or (a is factor and b is not factor and added is not factor)


def _terms(product: fx.Node) -> tuple[Any, Any, Any]:
    """The added term, or None, and the two factors."""
    return (None, *product.args) if product.target is aten.mm.default else product.args  # type: ignore[return-value]  # of an addmm: three


def _comes_before(node: fx.Node, place: fx.Node) -> bool:
    """Whether a node is computed before another; a transposition is moved there if it can be."""
    if node < place:
        return True
    if node.target in TRANSPOSED and node.args[0] < place:  # type: ignore[operator]  # a node
        place.prepend(node)
        return True
    return False


def _call(graph: fx.Graph, target: Any, args: tuple[Any, ...]) -> fx.Node:
    """A new node, with the value that inductor needs to know."""
    made = graph.call_function(target, args)
    made.meta["val"] = target(*fx.node.map_arg(args, lambda node: node.meta["val"]))
    return made


def _shape(node: Any) -> list[Any]:
    return list(node.meta["val"].shape)


def _erase(wait: fx.Node) -> None:
    """A wait that nothing uses, and what only it used."""
    unused: list[Any] = [wait]
    while unused:
        node = unused.pop()
        if isinstance(node, fx.Node) and not node.users and node.op == "call_function":
            before = node.all_input_nodes
            node.graph.erase_node(node)
            unused += before
