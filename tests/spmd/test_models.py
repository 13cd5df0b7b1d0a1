"""Models on several ranks equal one device, and need the collectives that a person would write."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from dlcp_client.spmd.annotations import annotate
from dlcp_client.spmd.mesh import Mesh
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
