"""Sums of gradients share few operations, which begin before the backward pass ends."""

import torch
from torch import fx

from dlcp_client.spmd.annotations import annotate
from dlcp_client.spmd.coalescing import OPERATIONS, buckets, coalesced
from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.planning import plan
from tests.spmd.models import TENSOR_PARALLEL, gpt

BATCH = [("data", None), ("data", None)]


def methods(graph: fx.Graph) -> list[str]:
    return [str(node.target) for node in graph.nodes if node.op == "call_method"]


def test_gradients_of_data_parallel_share_4_operations() -> None:
    model, arguments = gpt()
    made = plan(model, Mesh({"data": 2}), example=arguments, inputs=BATCH)
    graph = coalesced(made)
    graph.lint()
    found = methods(graph)
    assert found.count("begin_sum") == found.count("end_sum") <= OPERATIONS
    assert found.count("all_reduce") == 2  # the loss, and the number of labels
    sizes = [sum(one.sent for one in bucket) for bucket in buckets(made)]
    assert sum(map(len, buckets(made))) == len(list(model.parameters()))
    assert sum(sizes) == sum(one.sent for one in made.collectives if one.caller.op == "output") - (
        next(one.sent for one in made.collectives if not one.value.shape)
    )


def test_sums_begin_before_the_backward_pass_ends() -> None:
    model, arguments = gpt()
    made = plan(model, Mesh({"data": 2}), example=arguments, inputs=BATCH)
    nodes = list(coalesced(made).nodes)
    places = [at for at, node in enumerate(nodes) if node.target == "begin_sum"]
    products = [at for at, node in enumerate(nodes) if node.target == torch.ops.aten.mm.default]
    ends = [at for at, node in enumerate(nodes) if node.target == "end_sum"]
    after_first = [at for at in products if at > places[0]]
    assert len(after_first) > len(products) / 4
    assert min(ends) > max(*places, *products)


def test_only_gradients_of_an_axis_are_joined() -> None:
    model, arguments = gpt()
    mesh = Mesh({"data": 2, "model": 2})
    annotate(model, mesh, TENSOR_PARALLEL)
    made = plan(model, mesh, example=arguments, inputs=BATCH)
    found = methods(coalesced(made))
    inside = [one for one in made.collectives if one.caller.op != "output"]
    assert {bucket[0].axis for bucket in buckets(made)} == {"data"}
    assert found.count("all_reduce") == len(inside) + 1  # the loss
