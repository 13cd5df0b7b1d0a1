"""Large tensors become whole only where a user says so."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dlcp_client.spmd import keep_whole
from dlcp_client.spmd.annotations import annotate
from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.planning import plan
from dlcpd.contract.errors import BadConfig
from tests.spmd.one_device import assert_equal

MESH = Mesh({"a": 2})


class Sorted(nn.Module):
    """Sorts along the divided dimension; `keep`: it says that the tensor shall be whole."""

    def __init__(self, *, keep: bool = False) -> None:
        super().__init__()
        self.weight, self.keep = nn.Parameter(torch.ones(8, dtype=torch.double)), keep

    def forward(self, x: Tensor) -> Tensor:
        y = x * self.weight
        if self.keep:
            y = keep_whole(y)
        return torch.sort(y, dim=1).values[:, :3].tanh().sum()


def planned(model: nn.Module, replicate_over: Any) -> None:
    x = torch.randn(6, 8).double()
    made = plan(model, MESH, example=(x,), inputs=[(None, "a")], replicate_over=replicate_over)
    assert_equal(made, model, (x,))


def test_a_large_tensor_that_becomes_whole_is_refused_with_its_line() -> None:
    size = 6 * 8 * 8
    said = (
        rf"aten.sort.default needs a whole tensor of \[6, 8\] on every rank, {size} bytes, at "
        r"test_whole.py:\d+: return torch.sort.*; the tensor comes from test_whole.py:\d+: "
        rf"y = x \* self.weight: annotate .* replicate_over= above {size - 1}$"
    )
    with pytest.raises(BadConfig, match=said):
        planned(Sorted(), replicate_over=size - 1)
    planned(Sorted(), replicate_over=size)


def test_a_tensor_is_whole_where_the_model_says_so() -> None:
    planned(Sorted(keep=True), replicate_over=0)


def test_keep_whole_is_nothing_outside_a_plan() -> None:
    x = torch.ones(2)
    assert keep_whole(x) is x


def test_parameters_and_results_may_be_whole() -> None:
    model = nn.Linear(4, 6).double()
    annotate(model, Mesh({"a": 2}), {"weight": ("a", None), "bias": ("a",)}, priority=1)
    x = torch.randn(4, 4).double()
    made = plan(model, MESH, example=(x,), inputs=[("a", None)], replicate_over=0)
    assert_equal(made, model, (x,))


@pytest.mark.parametrize("value", [-1, 1.5, True, "16M"])
def test_a_wrong_limit_is_refused(value: Any) -> None:
    with pytest.raises(BadConfig, match=r"replicate_over=.*: use a whole number of bytes"):
        planned(Sorted(), replicate_over=value)
