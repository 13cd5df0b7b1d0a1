"""Products whose sums take long are one call with them, and no others."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from dlcp_client.spmd.annotations import annotate
from dlcp_client.spmd.coalescing import coalesced
from dlcp_client.spmd.costs import LEAST, Costs, Link
from dlcp_client.spmd.emission import SERVES, Collective
from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.overlapped import METHOD, overlapped, pieces_of
from dlcp_client.spmd.planning import plan
from tests.spmd.models import TENSOR_PARALLEL, gpt

MESH = Mesh({"model": 2})
BYTES = 4 * 8 * 32 * 8  # that a rank sends for a sum of a layer, of 2 ranks


def graph_of(model: nn.Module, arguments: Any, patterns: Any, costs: Costs) -> fx.Graph:
    annotate(model, MESH, patterns)
    made = overlapped(coalesced(plan(model, MESH, example=arguments, costs=costs)), costs)
    made.lint()
    return made


def methods(graph: fx.Graph) -> Counter[Any]:
    return Counter(node.target for node in graph.nodes if node.op == "call_method")


@pytest.mark.parametrize("pieces", [1, 3, 20])
def test_sums_of_a_transformer_s_layers_have_their_products(pieces: int) -> None:
    slow = Costs(axes={"model": Link(0.0, BYTES / LEAST / (pieces + 0.5))})
    graph = graph_of(*gpt(), TENSOR_PARALLEL, slow)
    found = methods(graph)
    if pieces == 1:
        assert found["all_reduce"] == 8 and METHOD not in found
        return
    assert found[METHOD] == 8 and "all_reduce" not in found
    calls = [node.args for node in graph.find_nodes(op="call_method", target=METHOD)]
    # Two in the forward pass of a layer; in its backward pass, that of query, key and value.
    assert sorted(len(factors) for _, factors, _, _ in calls) == [1, 1, 1, 1, 1, 1, 3, 3]
    assert {count for *_, count in calls} == {min(pieces, 8)}


aten = torch.ops.aten
Make = Callable[[fx.Graph, fx.Node, fx.Node], fx.Node]


def _sum_of_other(graph: fx.Graph, a: fx.Node, b: fx.Node) -> fx.Node:
    return graph.call_function(aten.add.Tensor, (_product(graph, a, b), a))


def _with_alpha(graph: fx.Graph, a: fx.Node, b: fx.Node) -> fx.Node:
    both = _product(graph, a, b), _product(graph, b, a)
    return graph.call_function(aten.add.Tensor, both, {"alpha": 2})


def _of_shapes(graph: fx.Graph, a: fx.Node, b: fx.Node) -> fx.Node:
    other = graph.call_function(aten.reshape.default, (_product(graph, b, a), [2, 2, 4]))
    return graph.call_function(aten.add.Tensor, (_product(graph, a, b), other))


def _twice(graph: fx.Graph, a: fx.Node, b: fx.Node) -> fx.Node:
    made = _product(graph, a, b)
    return graph.call_function(aten.add.Tensor, (made, made))


def _used_again(graph: fx.Graph, a: fx.Node, b: fx.Node) -> fx.Node:
    made = _product(graph, a, b)
    graph.call_method("keep", (made,))
    return made


def _product(graph: fx.Graph, a: fx.Node, b: fx.Node) -> fx.Node:
    return graph.call_function(aten.mm.default, (a, b))


def _argument(_graph: fx.Graph, a: fx.Node, _b: fx.Node) -> fx.Node:
    return a


@pytest.mark.parametrize("with_product", [_product, None])
@pytest.mark.parametrize(
    "make", [_sum_of_other, _with_alpha, _of_shapes, _twice, _used_again, _argument]
)
def test_other_partial_sums_stay(make: Make, with_product: Make | None) -> None:
    """The graph has this sum alone, or a second one, which gets its product."""
    graph = fx.Graph()
    ranks, a, b = map(graph.placeholder, ("ranks", "a", "b"))
    sums = []
    for one in (make, with_product):
        if one is not None:
            given: Any = (ranks, one(graph, a, b), "model")
            sums.append(graph.call_method("all_reduce", given))
            value: Any = None  # what no pass of this module reads
            sums[-1].meta[SERVES] = (Collective(sums[-1], value, value, "model", 1e9),)
    graph.output(tuple(sums))
    found = methods(overlapped(graph, Costs()))
    assert found["all_reduce"] == 1 and found[METHOD] == (with_product is not None)


class Mixed(nn.Module):
    """The sum of a product of one row or another type, and of one of several rows."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16, 4))

    def forward(self, x: Tensor, row: Tensor) -> Tensor:
        return x @ self.weight + row @ self.weight.to(row.dtype)


@pytest.mark.parametrize("other", [torch.ones(1, 16), torch.ones(8, 16).double()])
def test_products_of_another_kind_are_no_terms_of_one_sum(other: Tensor) -> None:
    slow, given = Costs(bytes_per_s=1.0), (torch.ones(8, 16), other)
    graph = graph_of(Mixed(), given, {"weight": ("model", None)}, slow)
    calls = [node.args for node in graph.find_nodes(op="call_method", target=METHOD)]
    assert all(len(factors) == 1 for _, factors, _, _ in calls)


def test_a_small_result_is_one_piece() -> None:
    assert [pieces_of(size << 10, 8) for size in (64, 511, 512, 1 << 20)] == [0, 1, 2, 8]
