"""Sums of gradients share few operations, which begin before the backward pass ends."""

from dataclasses import replace

import torch
from torch import Tensor, fx, nn

from dlcp_client.spmd.annotations import annotate
from dlcp_client.spmd.capture import Kind
from dlcp_client.spmd.coalescing import (
    GATHERS,
    OPERATIONS,
    buckets,
    coalesced,
    gathers,
    gathers_of_calls,
)
from dlcp_client.spmd.costs import LEAST, Costs
from dlcp_client.spmd.halves import halves_of
from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.partitioner import Partition
from dlcp_client.spmd.planning import plan
from dlcp_client.spmd.urgency import classes_of_gradients
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
    assert found.count("sum_numbers") == 1  # the loss, and the number of labels
    assert "all_reduce" not in found
    sizes = [sum(one.sent for one in bucket) for bucket in buckets(made)]
    assert sum(map(len, buckets(made))) == len(list(model.parameters()))
    assert sum(sizes) == sum(one.sent for one in made.collectives if one.caller.op == "output") - (
        next(one.sent for one in made.collectives if not one.value.shape)
    )


def test_bytes_that_take_little_time_are_worth_one_operation() -> None:
    model, arguments = gpt()
    made = plan(model, Mesh({"data": 2}), example=arguments, inputs=BATCH)
    (every,) = buckets(made)
    size = sum(one.sent for one in every)
    for count, found in ((2, 2), (3, 3), (9, OPERATIONS)):
        slow = replace(made, costs=Costs(bytes_per_s=size / count / LEAST))
        assert len(buckets(slow)) == found


def test_gathers_of_one_call_share_an_operation() -> None:
    """The gradient of an embedding needs all words, and the gradients of all their vectors."""

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(5000, 8)

        def forward(self, words: Tensor) -> Tensor:
            found: Tensor = self.words(words)
            return found.square().mean()

    words = torch.randint(0, 50, (4, 8))
    made = plan(Words(), Mesh({"data": 2}), example=(words,), inputs=[("data", None)])
    assert [one.kind for one in made.collectives].count("all_gather") == 2
    ((first, second),) = gathers_of_calls(made)
    assert {first.value.tensor.dtype, second.value.tensor.dtype} == {torch.float32, torch.int64}
    graph = coalesced(made)
    graph.lint()
    assert "all_gather" not in methods(graph)
    assert methods(graph).count("begin_gathers") == 1


def test_sums_begin_before_the_backward_pass_ends() -> None:
    model, arguments = gpt()
    made = plan(model, Mesh({"data": 2}), example=arguments, inputs=BATCH)
    made = replace(made, costs=Costs(bytes_per_s=1.0))
    nodes = list(coalesced(made).nodes)
    places = [at for at, node in enumerate(nodes) if node.target == "begin_sums"]
    products = [at for at, node in enumerate(nodes) if node.target == torch.ops.aten.mm.default]
    ends = [at for at, node in enumerate(nodes) if node.target == "end"]
    after_first = [at for at in products if at > places[0]]
    assert len(after_first) > len(products) / 4
    assert min(ends) > max(*places, *products)


def test_gradients_that_the_next_forward_pass_awaits_first_are_more_urgent() -> None:
    """As `ddp.register` has them, though backward passes make the last layers' gradients first."""
    model, arguments = gpt()
    made = plan(model, Mesh({"data": 2}), example=arguments, inputs=BATCH)
    classes = classes_of_gradients(made.plan.captured)
    of = {
        port.name: classes[port.value]
        for port in made.plan.captured.outputs
        if port.kind is Kind.GRADIENT and port.value
    }
    assert of["tokens.weight"] == "front" and of["last.weight"] == "back"
    assert of["blocks.0.q.weight"] == "front" and of["blocks.1.down.weight"] == "back"
    given = [node.args[-1] for node in coalesced(made).nodes if node.target == "begin_sums"]
    assert given[0][0] == "back" and given[-1][-1] == "front"
    for node, bucket in zip(given, buckets(made), strict=True):
        assert node == [classes[one.value] for one in bucket]


def test_only_gradients_of_an_axis_are_joined() -> None:
    model, arguments = gpt()
    mesh = Mesh({"data": 2, "model": 2})
    annotate(model, mesh, TENSOR_PARALLEL)
    made = plan(model, mesh, example=arguments, inputs=BATCH)
    found = methods(coalesced(made))
    inside = [one for one in made.collectives if one.caller.op != "output"]
    assert {bucket[0].axis for bucket in buckets(made)} == {"data"}
    assert found.count("all_reduce") == len(inside) - 1  # the number of labels
    assert found.count("sum_numbers") == 1  # that, and the loss


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
