"""Tensors that a model makes from numbers are part of the program's text."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from dlcp_client.spmd.costs import Costs
from dlcp_client.spmd.literals import LITERAL, MOST
from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.partitioner import Partition
from dlcp_client.spmd.planning import plan
from dlcpd.contract.errors import BadConfig
from tests.spmd.one_device import assert_equal

SHAPE = (6, 4)
ROWS = ("a", None)
SLOW = Costs(work_per_s=1e3)  # work is dear: what can be divided is


class Of(nn.Module):
    """A function of the argument that a weight has scaled."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(SHAPE[1]).double())
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x * self.weight)


def divided(function: Callable[[Tensor], Tensor], ranks: int = 2) -> Partition:
    """Equal to one device."""
    torch.manual_seed(0)
    model, x = Of(function), torch.randn(SHAPE).double()
    made = plan(model, Mesh({"a": ranks}), example=(x,), inputs=[ROWS], costs=SLOW)
    assert_equal(made, model, (x,))
    return made


def in_place(x: Tensor) -> Tensor:
    sums = torch.tensor([0.5, 1.0, 1.5, 2.0]).double()
    sums += 1.0
    return x * sums


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "row": lambda x: x * torch.tensor([0.5, 1.0, 1.5, 2.0]),
    "number": lambda x: x * torch.tensor(0.25),
    "of the divided dimension": lambda x: x * torch.tensor([[1.0], [2], [3], [4], [5], [6]]),
    "of both dimensions": lambda x: x + torch.tensor([[1.0, 2, 3, 4]] * 6),
    "whole numbers": lambda x: x[:, torch.tensor([3, 0, 0])],
    "truths": lambda x: x.masked_fill(torch.tensor([True, False, True, False]), 0.0),
    "float16": lambda x: x + torch.tensor([1 / 3] * 4, dtype=torch.float16),
    "no number": lambda x: torch.cat((x, torch.tensor([]).double().view(6, 0)), 1),
    "not finite": lambda x: torch.minimum(x, torch.tensor([float("inf"), 0.0, -1.0, 1.0])),
    "changed in place": in_place,
}


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_literal_is_that_of_one_device(function: Callable[[Tensor], Tensor], ranks: int) -> None:
    made = divided(function, ranks)
    assert made.graph.find_nodes(op="call_function", target=LITERAL)


def test_numbers_are_in_the_text_that_ranks_compare() -> None:
    texts = {
        str(divided(lambda x: x * torch.tensor([1.0, 1.0, 1.0, 2.0])).graph),
        str(divided(lambda x: x * torch.tensor([1.0, 1.0, 1.0, 3.0])).graph),
    }
    assert len(texts) == 2


def test_too_many_numbers_belong_in_a_buffer() -> None:
    model, x = Of(lambda x: x.sum() * torch.tensor([1.0] * (MOST + 1))), torch.randn(SHAPE).double()
    with pytest.raises(BadConfig, match="buffer"):
        plan(model, Mesh({"a": 2}), example=(x,), inputs=[ROWS])
