"""Norms with running statistics, dropout, interpolation and recurrent layers."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dlcp_client.spmd.annotations import annotate
from dlcp_client.spmd.capture import Kind
from dlcp_client.spmd.costs import Costs
from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.planning import plan
from tests.spmd.one_device import assert_equal, counts, run

DEAR = Costs(latency=0.0, bytes_per_s=1e3)
SLOW = Costs(latency=0.0, work_per_s=1e3)  # ranks that divide their work


class Squared(nn.Module):
    """The sum of the squares of a layer's result."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        return (torch.tanh(y[0] if isinstance(y, tuple) else y) ** 2).sum()


def divided(layer: nn.Module, x: Tensor, dims: Any, mesh: Mesh, costs: Costs | None = DEAR) -> Any:
    torch.manual_seed(0)
    model = Squared(layer.double())
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    x = x.double()
    partition = plan(model, mesh, example=(x,), inputs=[dims], costs=costs)
    assert_equal(partition, model, (x,))
    return partition


IMAGE = (None, None, None, "space")
BATCH = ("data", None, None)


@pytest.mark.parametrize("dims", [("space", None, None, None), IMAGE])
@pytest.mark.parametrize("train", [True, False])
def test_batch_norm_is_that_of_the_whole_batch(dims: Any, train: bool) -> None:
    layer = nn.BatchNorm2d(3).train(train)
    partition = divided(layer, torch.randn(7, 3, 8, 10), dims, Mesh({"space": 3}))
    assert set(counts(partition)) == {"all_reduce"}
    kinds = [port.kind for port in partition.plan.captured.outputs]
    assert kinds.count(Kind.UPDATE) == 3 * train  # mean, variance, number of batches


@pytest.mark.parametrize(
    "layer",
    [nn.GroupNorm(2, 4), nn.GroupNorm(4, 4, affine=False), nn.InstanceNorm2d(4, affine=True)],
    ids=lambda layer: type(layer).__name__,
)
def test_other_norms(layer: nn.Module) -> None:
    divided(layer, torch.randn(5, 4, 4, 9), IMAGE, Mesh({"space": 2}))
    batch = ("space", None, None, None)
    divided(layer, torch.randn(5, 4, 4, 9), batch, Mesh({"space": 2}))


@pytest.mark.parametrize("width", [7, 12])
def test_nearest_interpolation_sends_rows_that_change_their_rank(width: int) -> None:
    layer = nn.Upsample(scale_factor=3)
    partition = divided(layer, torch.randn(2, 3, 24, width), IMAGE, Mesh({"space": 3}))
    assert counts(partition).keys() <= {"halo_exchange", "halo_reduce", "all_reduce"}
    layer = nn.Upsample(size=(24, 2 * width))
    divided(layer, torch.randn(2, 3, 24, width), IMAGE, Mesh({"space": 3}))


OTHERS = [
    nn.Upsample(scale_factor=1.5),
    nn.Upsample(scale_factor=2, mode="bilinear"),
    nn.Upsample(scale_factor=2, mode="bicubic"),
]


@pytest.mark.parametrize("layer", OTHERS, ids=str)
def test_other_interpolation_needs_the_whole_image(layer: nn.Module) -> None:
    x = torch.randn(4, 3, 8, 8)
    divided(layer, x, IMAGE, Mesh({"space": 2}))
    batch = divided(layer, x, ("space", None, None, None), Mesh({"space": 2}))
    assert set(counts(batch)) <= {"all_reduce"}


RECURRENT = nn.LSTM(4, 6, 2, batch_first=True, bidirectional=True), nn.GRU(4, 6, batch_first=True)


@pytest.mark.parametrize("layer", RECURRENT, ids=str)
def test_recurrent_layers(layer: nn.Module) -> None:
    partition = divided(layer, torch.randn(6, 3, 4), BATCH, Mesh({"data": 2}), SLOW)
    assert set(counts(partition)) == {"all_reduce"}
    x = torch.randn(5, 3, 4)
    divided(layer, x, BATCH, Mesh({"data": 2}), SLOW)
    divided(layer, x, (None, None, "data"), Mesh({"data": 2}))


def test_recurrent_layers_of_floats_are_divided_too() -> None:
    """Torch has one operation for them on a CPU."""
    x = torch.randn(4, 3, 4)
    made = plan(
        Squared(nn.LSTM(4, 6)), Mesh({"data": 2}), example=(x,), inputs=[(None, "data", None)]
    )
    assert "mkldnn" not in made.text


class Dropped(nn.Module):
    """A weight, dropout by 0.3 twice."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(40, 30, dtype=torch.double))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        once = F.dropout(x * self.weight, 0.3)
        flat = F.dropout((x * self.weight).flatten(), 0.3)
        return once * 2, flat * 2


def test_dropout_does_not_depend_on_the_mesh() -> None:
    x = torch.ones(40, 30).double()
    found = []
    meshes = [Mesh({"a": 1, "b": 1}), Mesh({"a": 3, "b": 2}), Mesh({"a": 2, "b": 4})]
    for mesh in meshes:
        model = Dropped()
        annotate(model, mesh, {"weight": ("b", "a")})
        made = plan(model, mesh, example=(x,), inputs=[("a", "b")], costs=Costs(work_per_s=1e3))
        found.append(run(made, model, (x,)))
        assert mesh.ranks == 1 or made.collectives
    for key, right in found[0].items():
        for one in found[1:]:
            torch.testing.assert_close(one[key], right)
    first, second = found[0][Kind.RESULT, "0"], found[0][Kind.RESULT, "1"].view(40, 30)
    kept = first != 0
    assert (first[kept] == 2 / 0.7).all()
    assert abs(float(kept.double().mean()) - 0.7) < 0.05
    assert (kept != (second != 0)).double().mean() > 0.3  # 0.42 for independent masks
    # Rows and columns have no masks in common.
    assert len({tuple(row) for row in kept.tolist()}) == 40
    assert len({tuple(row) for row in kept.t().tolist()}) == 30


def test_dropout_of_everything_and_of_nothing() -> None:
    x = torch.randn(4, 6)
    divided(nn.Dropout(1.0), x, ("a", None), Mesh({"a": 2}))
    divided(nn.Dropout(0.0), x, ("a", None), Mesh({"a": 2}))
    divided(nn.Dropout(0.5).eval(), x, ("a", None), Mesh({"a": 2}))
