"""Partial sums are added late and once; padding and scalars never enter them twice."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from dlcp_client.spmd.annotations import annotate
from dlcp_client.spmd.costs import Costs
from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.planning import plan
from tests.spmd.one_device import assert_equal, counts

MESH = Mesh({"model": 3})


class Of(nn.Module):
    """A function of x (4 x 7) and of two weights (7 x 5), whose 7 rows 3 ranks divide unevenly."""

    def __init__(self, function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = (nn.Parameter(torch.randn(7, 5).double()) for _ in range(2))
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.a, self.b)


@pytest.mark.parametrize(
    ("function", "sums"),
    [
        (lambda x, a, b: x @ a + x @ b, 1),
        (lambda x, a, b: (x @ a - x @ b).t() * 2, 1),
        (lambda x, a, b: x @ a + 1, 1),
        (lambda x, a, b: 1 / (x @ a), 1),
        (lambda x, a, b: torch.tanh(x @ a) + x @ a, 1),
        (lambda x, a, b: (x @ a) * (x @ b), 2),
        (lambda x, a, b: (x @ a).sum(), 1),
        (lambda x, a, b: torch.log(a * a).sum(0), 1),  # of padding: minus infinity
        (lambda x, a, b: (a * b).sum(), 1),
    ],
)
def test_sums_are_added_once(
    function: Callable[[Tensor, Tensor, Tensor], Tensor], sums: int
) -> None:
    model, x = Of(function), torch.randn(4, 7).double()
    annotate(model, MESH, {"[ab]": ("model", None)})
    made = plan(model, MESH, example=(x,))
    assert_equal(made, model, (x,))
    assert counts(made)["all_reduce"] == sums


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (lambda x, a, b: x @ a, {"all_gather": 1}),
        (lambda x, a, b: x @ a + x @ b, {"all_reduce": 1}),
        (lambda x, a, b: (x @ a).view(25) - (x @ b).view(25), {"all_reduce": 1}),
        (lambda x, a, b: x @ a + torch.tanh(x @ b), {"all_gather": 2}),
    ],
)
def test_products_of_one_sum_share_its_price(
    function: Callable[[Tensor, Tensor, Tensor], Tensor], found: dict[str, int]
) -> None:
    """On a slow network, ranks send 30 numbers to gather a weight, and 33 to add up a product."""
    model, x = Of(function), torch.randn(5, 7).double()
    annotate(model, MESH, {"[ab]": ("model", None)})
    made = plan(model, MESH, example=(x,), costs=Costs(latency=0.0, bytes_per_s=1.0))
    assert_equal(made, model, (x,))
    assert counts(made) == found


def test_a_partial_sum_times_a_tensor_divided_by_its_axis() -> None:
    model = Of(lambda x, a, b: (x @ a) * torch.tanh(b[:1]))
    annotate(model, MESH, {"a": ("model", None), "b": (None, "model")})
    # On a slow network a product of one row is cheaper to add up than a weight to move.
    x, slow = torch.randn(1, 7).double(), Costs(latency=0.0, bytes_per_s=1.0)
    made = plan(model, MESH, example=(x,), costs=slow)
    assert_equal(made, model, (x,))
    assert counts(made)["reduce_scatter"] == 1


def test_a_dimension_with_a_row_per_rank_is_not_squeezed() -> None:
    model = Of(lambda x, a, b: (a[:3] * 2).unsqueeze(0).squeeze() + b[:3])
    annotate(model, MESH, {"[ab]": (None, "model")})
    x = torch.randn(3, 4, 7).double()
    assert_equal(plan(model, MESH, example=(x,), inputs=[("model", None, None)]), model, (x,))
    model = Of(lambda x, a, b: x.squeeze(0) * a.sum() * b.sum())
    assert_equal(plan(model, MESH, example=(x,), inputs=[("model", None, None)]), model, (x,))
