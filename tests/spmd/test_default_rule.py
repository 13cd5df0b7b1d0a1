"""Operations without a rule run on every rank as a whole, and `explain` names them."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dlcp_client.spmd.explanation import explain
from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.planning import plan
from dlcpd.contract.errors import BadConfig
from tests.spmd.one_device import assert_equal

MESH = Mesh({"a": 3})
ROWS = ("a", None, None)


class Of(nn.Module):
    """A function of an argument that a weight has scaled."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8).double())
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x * self.weight)


def planned(function: Callable[[Tensor], Any]) -> Any:
    torch.manual_seed(0)
    model, arguments = Of(function), (torch.randn(7, 5, 8).double(),)
    made = plan(model, MESH, example=arguments, inputs=[ROWS])
    return made, model, arguments


WHOLE = {
    "aten.take.default": lambda x: x.take(torch.tensor([3, 9])),
    "aten.diagonal.default": lambda x: torch.diagonal(x, 0, 1, 2),
    "aten.renorm.default": lambda x: x.renorm(2, 0, 1.0),
    "aten.masked_scatter.default": lambda x: x.masked_scatter(x > 0, x * 2),
    "aten.linalg_pinv.atol_rtol_tensor": torch.linalg.pinv,
}


@pytest.mark.parametrize("name", WHOLE)
def test_such_an_operation_gives_the_same_and_is_named(name: str) -> None:
    made, model, arguments = planned(WHOLE[name])
    assert_equal(made, model, arguments)
    rows = json.loads(explain(made, "json"))["without a rule"]
    (row,) = [one for one in rows if one["operation"] == name]
    assert row["times"] == 1 and "test_default_rule.py:" in row["line"]
    assert f"1      {name}" in explain(made)


def test_a_model_whose_operations_have_rules_has_no_such_table() -> None:
    made, *_ = planned(torch.tanh)
    assert "without a rule" not in explain(made)
    assert json.loads(explain(made, "json"))["without a rule"] == []


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: torch.poisson(x.abs()), "aten.poisson.default"),
        (lambda x: x.as_strided((3, 4), (8, 1)), "aten.as_strided.default"),
    ],
)
def test_what_ranks_cannot_compute_alike_is_refused(
    function: Callable[[Tensor], Tensor], name: str
) -> None:
    """Random numbers; and parts of memory, in which shards may lie in another way."""
    with pytest.raises(BadConfig, match=rf"no rule .*: {name} \(test_default_rule"):
        planned(function)


def test_a_large_operand_that_would_become_whole_is_refused() -> None:
    model = Of(lambda x: x.renorm(2, 0, 1.0))
    x = torch.randn(7, 5, 8).double()
    with pytest.raises(
        BadConfig, match=r"aten.renorm.default needs a whole tensor .*set replicate"
    ):
        plan(model, MESH, example=(x,), inputs=[ROWS], replicate_over=100)
