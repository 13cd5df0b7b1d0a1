"""Sums of gradients share few operations, which begin before the backward pass ends."""

import torch
from torch import fx

from dlcp_client.spmd.annotations import annotate
from dlcp_client.spmd.coalescing import GATHERS, OPERATIONS, buckets, coalesced, gathers
from dlcp_client.spmd.halves import halves_of
from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.partitioner import Partition
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
    assert found.count("begin_sums") == found.count("end") <= OPERATIONS
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
    places = [at for at, node in enumerate(nodes) if node.target == "begin_sums"]
    products = [at for at, node in enumerate(nodes) if node.target == torch.ops.aten.mm.default]
    ends = [at for at, node in enumerate(nodes) if node.target == "end"]
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


def sharded() -> Partition:
    model, arguments = gpt(batch=64)
    mesh = Mesh({"data": 2})
    every = {name: ("data", *[None] * (p.dim() - 1)) for name, p in model.named_parameters()}
    annotate(model, mesh, every, priority=1)
    return plan(model, mesh, example=arguments, inputs=BATCH)


def test_sharded_parameters_share_gathers_and_scatters_of_a_pass() -> None:
    made = sharded()
    graph = coalesced(made)
    graph.lint()
    found = methods(graph)
    assert "all_gather" not in found and "reduce_scatter" not in found
    assert found.count("begin_scatters") <= OPERATIONS
    forward, backward = (len(row) for row in gathers(made))
    assert forward <= GATHERS and backward <= GATHERS
    assert found.count("begin_gathers") == forward + backward
    assert found.count("end") == found.count("begin_gathers") + found.count("begin_scatters")
    halves = halves_of(graph, made.plan.captured)
    assert methods(halves.forward.graph).count("begin_gathers") == forward
    assert methods(halves.backward.graph).count("begin_gathers") == backward


def test_gathers_begin_while_those_before_are_used() -> None:
    """And not all of them at the start: whole parameters take memory."""
    found = [one for one in methods(coalesced(sharded())) if one in ("begin_gathers", "end")]
    assert found[:5] == ["begin_gathers", "begin_gathers", "end", "begin_gathers", "end"]
