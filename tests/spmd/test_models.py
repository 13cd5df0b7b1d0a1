"""Models on several ranks equal one device, and need the collectives that a person would write."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dlcp_client.spmd.annotations import annotate
from dlcp_client.spmd.explanation import explain
from dlcp_client.spmd.marks import mesh_split
from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.planning import plan
from tests.spmd.models import TENSOR_PARALLEL, gpt, perceptron
from tests.spmd.one_device import assert_equal, counts

BATCH = [("data", None), ("data", None)]
LAYERS = 2


def divided(
    made: Any, mesh: Mesh, patterns: Mapping[str, Any], inputs: Sequence[Any], priority: int = 0
) -> dict[str, int]:
    """The collectives of a model whose ranks' results and gradients equal those of one device."""
    model, arguments = made
    annotate(model, mesh, patterns, priority=priority)
    partition = plan(model, mesh, example=arguments, inputs=inputs)
    assert_equal(partition, model, arguments)
    assert "unknown line" not in explain(partition)
    return counts(partition)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_a_hidden_layer_divided_unevenly_needs_one_sum(ranks: int) -> None:
    found = divided(perceptron(), Mesh({"model": ranks}), {"up.weight": ("model", None)}, [])
    assert found == {"all_reduce": 1}


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_a_batch_divided_unevenly_needs_a_sum_per_gradient(ranks: int) -> None:
    inputs = [("data", None), ("data",)]
    found = divided(perceptron(), Mesh({"data": ranks}), {}, inputs)
    assert found["all_reduce"] >= 5  # 4 gradients and the loss


@pytest.mark.parametrize("ranks", [2, 4])
def test_tensor_parallel_has_4_sums_per_layer(ranks: int) -> None:
    found = divided(gpt(), Mesh({"model": ranks}), TENSOR_PARALLEL, [])
    assert found == {"all_reduce": 4 * LAYERS}


def test_heads_that_ranks_do_not_divide_are_gathered() -> None:
    found = divided(gpt(), Mesh({"model": 3}), TENSOR_PARALLEL, [])
    assert found["all_reduce"] == 4 * LAYERS and found["all_gather"] <= 4 * LAYERS


@pytest.mark.parametrize("ranks", [2, 4])
def test_data_parallel_has_a_sum_per_gradient_and_the_loss(ranks: int) -> None:
    model, _ = made = gpt()
    gradients = len(list(model.parameters()))
    found = divided(made, Mesh({"data": ranks}), {}, BATCH)
    assert set(found) == {"all_reduce"} and gradients < found["all_reduce"] <= gradients + 2


def test_two_axes_work_side_by_side() -> None:
    model, _ = made = gpt()
    gradients = len(list(model.parameters()))
    found = divided(made, Mesh({"data": 2, "model": 2}), TENSOR_PARALLEL, BATCH)
    assert set(found) == {"all_reduce"}
    assert found["all_reduce"] <= gradients + 2 + 4 * LAYERS


def test_sharded_parameters_have_a_gather_per_use_and_a_scatter_per_gradient() -> None:
    """The parameters' annotations come after the inputs': axes go to the batch first."""
    model, _ = made = gpt(batch=64)
    names = dict(model.named_parameters())
    matrices = sum(p.dim() == 2 for p in names.values()) - 1  # of products: not the positions
    every = {name: ("data", *[None] * (p.dim() - 1)) for name, p in names.items()}
    found = divided(made, Mesh({"data": 2}), every, BATCH, priority=1)
    # Forward each parameter, and the tied one twice; backward the matrices again.
    gathers = len(names) + 1 + matrices
    # The loss, and the number of labels that count.
    assert found == {"all_gather": gathers, "reduce_scatter": len(names), "all_reduce": 2}


def test_sequence_parallel_has_scatters_and_gathers_instead_of_sums() -> None:
    mesh = Mesh({"model": 2})
    made = gpt(mark=lambda x: mesh_split(x, mesh, (None, "model", None), priority=1))
    found = divided(made, mesh, TENSOR_PARALLEL, [])
    assert found["reduce_scatter"] == 4 * LAYERS
    assert found["all_gather"] == 4 * LAYERS
    # Parameters whose gradients are sums over positions: norms, embedding; and two numbers.
    assert found["all_reduce"] == 2 * (2 * LAYERS + 1) + 1 + 2 and len(found) == 3


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_moving_a_division_sends_what_changes_its_rank(ranks: int) -> None:
    """An all-to-all: (p - 1) / p of a shard."""
    mesh = Mesh({"a": ranks})
    model = Moved(mesh)
    x = torch.randn(12, 24).double()
    partition = plan(model, mesh, example=(x,), inputs=[("a", None)])
    assert_equal(partition, model, (x,))
    (moved,) = [one for one in partition.collectives if one.kind == "all_to_all"]
    assert moved.sent == x.nbytes * (ranks - 1) / ranks**2


class Moved(nn.Module):
    """By rows, then by columns."""

    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.mesh, self.weight = mesh, nn.Parameter(torch.ones((), dtype=torch.double))

    def forward(self, x: Tensor) -> Tensor:
        x = mesh_split(torch.tanh(x), self.mesh, (None, "a"))
        return (torch.exp(x) * self.weight).sum()


def test_a_plan_does_not_depend_on_the_number_of_ranks() -> None:
    kinds = []
    for ranks in (2, 64):
        model, arguments = gpt(batch=64)
        mesh = Mesh({"data": ranks})
        made = plan(model, mesh, example=arguments, inputs=BATCH)
        kinds.append([(one.kind, one.caller.name) for one in made.collectives])
    assert kinds[0] == kinds[1]


class Sums(nn.Module):
    """Two parameters whose gradients are one tensor, the tangent itself."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = (nn.Parameter(torch.randn(4, 6).double()) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.a + self.b


def test_parameters_that_share_a_gradient_are_divided_apart() -> None:
    made = Sums(), (torch.randn(4, 6).double(),)
    patterns = {"a": ("model", None), "b": (None, "model")}
    found = divided(made, Mesh({"model": 2}), patterns, [])
    assert set(found) <= {"all_gather", "all_to_all"}  # nothing is a sum over ranks


class Results(nn.Module):
    """Results that are views of each other, or the parameter, or have no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 6).double())

    def forward(self, x: Tensor) -> Any:
        y = x * self.weight
        return y, y.view(-1), y, self.weight, self.weight[1:], y.detach(), x, y.argmax(1)


def test_every_result_has_its_gradient() -> None:
    made = Results(), (torch.randn(4, 6).double(),)
    for patterns in ({}, {"weight": ("a", None)}):
        divided(made, Mesh({"a": 2}), patterns, [("a", None)])
