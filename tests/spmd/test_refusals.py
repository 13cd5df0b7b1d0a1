"""Models that cannot be divided: one error, with the line and the operation."""

import gc
import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dlcp_client.spmd import Costs, Link, private_torch
from dlcp_client.spmd.marks import mesh_split
from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.planning import plan
from dlcpd.contract.errors import BadConfig

MESH = Mesh({"data": 2})


class Of(nn.Module):
    """A weight, times the result of a function."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x * self.weight)


def branches(x: Tensor) -> Tensor:
    return x if x.sum() > 0 else -x


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (torch.poisson, r"no rule .*: aten.poisson.default \(test_refusals"),
        (branches, r"Of cannot be captured at test_refusals.py:\d+: .*must not depend on values"),
        (lambda x: x[x > 0], "Of cannot be captured at test_refusals"),
        (lambda x: mesh_split(x, MESH, ("model", None)), "axis 'model' of the annotation of the "
         "tensor of mesh_split number 0"),
        (lambda x: mesh_split(x, Mesh({"data": 3}), ("data", None)), "mesh_split names the mesh "
         "data=3, and partition data=2"),
    ],
)  # fmt: skip
def test_a_model_that_cannot_be_divided_is_refused(
    function: Callable[[Tensor], Any], said: str
) -> None:
    with pytest.raises(BadConfig, match=said):
        plan(Of(function), MESH, example=(torch.ones(3, 4),))


def test_a_torch_without_a_private_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("torch._functorch.aot_autograd.aot_export_joint_with_descriptors")
    with pytest.raises(BadConfig, match=r"does not support torch .*joint_with_descriptors"):
        importlib.reload(private_torch)


def test_arguments_that_change_are_refused_by_name() -> None:
    model = Of(lambda x: x)
    model.forward = lambda x: x.add_(model.weight)  # type: ignore[method-assign]  # of one test
    with pytest.raises(BadConfig, match=r"the model changes .* in place: only buffers may change"):
        plan(model, MESH, example=(torch.ones(3, 4),))


def test_arguments_that_require_gradients_are_refused() -> None:
    with pytest.raises(BadConfig, match="argument 0 of the example requires a gradient"):
        plan(nn.Linear(4, 2), MESH, example=(torch.ones(3, 4, requires_grad=True),))


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ([("data", None), None], r"inputs= has 2 entries for 1 tensors of example="),
        ([("data",)], "argument 0 has 2 dimensions"),
        ([(None, "x")], "axis 'x' of the annotation of argument 0"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs: Any, said: str) -> None:
    with pytest.raises(BadConfig, match=said):
        plan(nn.Linear(4, 2), MESH, example=(torch.ones(3, 4),), inputs=inputs)


@pytest.mark.parametrize(
    ("costs", "said"),
    [
        ({"latency": -1.0}, "latency=-1.0 is out of range: use 0 or more"),
        ({"bytes_per_s": 0}, "bytes_per_s=0 is out of range: use 1 or more"),
        ({"work_per_s": float("nan")}, "work_per_s=nan"),
        ({"latency": "1ms"}, "latency='1ms'"),
        ({"axes": {"data": 1e9}}, "Costs axes=.*: give a Link for each of some axes"),
        ({"axes": 5}, "Costs axes=5"),
    ],
)
def test_costs_out_of_range_are_refused(costs: Any, said: str) -> None:
    with pytest.raises(BadConfig, match=said):
        Costs(**costs)


def test_links_out_of_range_and_of_other_axes_are_refused() -> None:
    with pytest.raises(BadConfig, match="Link bytes_per_s=0 is out of range: use 1 or more"):
        Link(latency=0.0, bytes_per_s=0)
    costs = Costs(axes={"rows": Link(0.0, 1e9)})
    with pytest.raises(BadConfig, match="Costs names the axis 'rows', and the mesh has "):
        plan(nn.Linear(4, 2), MESH, example=(torch.ones(3, 4),), costs=costs)


def test_only_tensors_are_arguments() -> None:
    with pytest.raises(BadConfig, match="example= has a value that is not a tensor"):
        plan(nn.Linear(4, 2), MESH, example=(torch.ones(3, 4), 2))


def test_an_axis_of_one_rank_needs_no_collective() -> None:
    inputs = [("data", None)]
    made = plan(nn.Linear(4, 2), Mesh({"data": 1}), example=(torch.ones(3, 4),), inputs=inputs)
    assert made.collectives == () and "ranks." not in made.text


def test_garbage_collection_goes_on_after_a_plan_that_fails() -> None:
    assert gc.isenabled()
    with pytest.raises(BadConfig, match="no rule"):
        plan(Of(torch.poisson), MESH, example=(torch.ones(3, 4),))
    assert gc.isenabled()


def test_mesh_split_is_nothing_outside_a_plan() -> None:
    x = torch.ones(2)
    assert mesh_split(x, MESH, ("this is not checked", None)) is x
