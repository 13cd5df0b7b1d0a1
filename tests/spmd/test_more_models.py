"""Models on 2, 3 and 4 ranks equal one device, with the collectives that a person would write."""

from typing import Any

import pytest
import torch
from torch import nn

from dlcp_client.spmd.annotations import annotate
from dlcp_client.spmd.costs import Costs
from dlcp_client.spmd.marks import mesh_split
from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.planning import plan
from tests.spmd.more_models import Conformer, Experts, Pipeline, ResNet, UNet
from tests.spmd.one_device import assert_equal, counts

SLOW = Costs(latency=0.0, bytes_per_s=1e5, work_per_s=1e6)  # of work that is worth dividing
SPATIAL = {"all_reduce", "halo_exchange", "halo_reduce"}


def divided(model: nn.Module, arguments: Any, dims: Any, mesh: Mesh, patterns: Any = None) -> Any:
    model = model.double()
    annotate(model, mesh, patterns or {})
    partition = plan(model, mesh, example=arguments, inputs=dims, costs=SLOW)
    assert_equal(partition, model, arguments)
    return partition


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_resnet_of_an_uneven_width_sends_halos(ranks: int) -> None:
    x, target = torch.randn(2, 3, 48, 70).double(), torch.randint(0, 5, (2,))
    dims = [(None, None, None, "space"), None]
    partition = divided(ResNet(), (x, target), dims, Mesh({"space": ranks}))
    found = counts(partition)
    # The last images are so small that to gather one may be cheaper.
    assert found["halo_exchange"] >= 5 and found.get("all_gather", 0) <= 4, found


@pytest.mark.parametrize("mesh", [Mesh({"x": 2, "y": 2}), Mesh({"x": 3, "y": 1})], ids=str)
def test_a_u_net_of_volumes_sends_halos(mesh: Mesh) -> None:
    x, target = torch.randn(1, 2, 12, 8, 6).double(), torch.randint(0, 2, (1, 12, 8, 6))
    dims = [(None, None, "x", "y", None), (None, "x", "y", None)]
    partition = divided(UNet(), (x, target), dims, mesh)
    assert counts(partition).keys() <= SPATIAL | {"all_gather", "all_to_all"}
    assert counts(partition)["halo_exchange"] >= 3


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_experts_have_all_to_alls(ranks: int) -> None:
    experts = 4 if ranks != 3 else 6
    x, target = (torch.randn(2 * ranks, 32, 16).double() for _ in range(2))
    rows = ("data", None, None)
    patterns = {"up": rows, "down": rows}
    mesh = Mesh({"data": ranks})
    by_expert = "data", None, None, None
    model = Experts(lambda y: mesh_split(y, mesh, by_expert), experts=experts)
    partition = divided(model, (x, target), [rows, rows], mesh, patterns)
    # Two in the forward pass, two in the backward pass.
    found = counts(partition)
    assert found["all_to_all"] == 4 and "all_gather" not in found, found


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_pipeline_sends_one_row_per_step(ranks: int) -> None:
    x, target = (torch.randn(6, 16, 8).double() for _ in range(2))
    patterns = dict.fromkeys(["weights", "first", "last"], ("stage", None, None))
    partition = divided(Pipeline(), (x, target), [], Mesh({"stage": ranks}), patterns)
    found = counts(partition)
    shifts = [one for one in partition.collectives if one.kind == "halo_exchange"]
    assert len(shifts) >= 8 and "all_gather" not in found, found
    assert {one.sent for one in shifts} == {16 * 8 * 8}  # of one stage


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_conformer_divided_in_batch_and_time(ranks: int) -> None:
    x, target = (torch.randn(6, 12, 8).double() for _ in range(2))
    mesh = Mesh({"a": ranks})
    batch = divided(Conformer(), (x, target), [("a", None, None)] * 2, mesh)
    assert set(counts(batch)) == {"all_reduce"}
    divided(Conformer(), (x, target), [(None, "a", None)] * 2, mesh)
