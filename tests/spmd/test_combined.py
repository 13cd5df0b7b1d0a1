"""Calls that torch has as one are one in a rank's program, and give the same."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dlcp_client.spmd.annotations import annotate
from dlcp_client.spmd.combined import combined
from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.partitioner import Partition
from dlcp_client.spmd.planning import plan
from tests.spmd.models import perceptron
from tests.spmd.one_device import expected, run
from tests.spmd.trainings import SLOW, SPACE

aten = torch.ops.aten


def targets(partition: Partition) -> list[Any]:
    return [node.target for node in partition.graph.nodes]


def assert_same(partition: Partition, model: nn.Module, arguments: tuple[Tensor, ...]) -> None:
    combined(partition.graph).lint()
    found, right = run(partition, model, arguments), expected(model, arguments)
    assert found.keys() == right.keys()
    for name, one in right.items():
        torch.testing.assert_close(found[name], one, rtol=1e-9, atol=1e-9)


def test_a_product_takes_its_bias_unless_a_sum_over_ranks_comes_between() -> None:
    model, arguments = perceptron()
    mesh = Mesh({"model": 2})
    annotate(model, mesh, {"up.weight": ("model", None)})
    made = plan(model, mesh, example=arguments)
    assert aten.addmm.default not in targets(made)
    assert_same(made, model, arguments)
    assert targets(made).count(aten.addmm.default) == 1  # `down` is a partial sum


class Scaled(nn.Module):
    """A product that is used twice, and one whose sum is larger."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3).double())
        self.more = nn.Parameter(torch.randn(2, 5, 3).double())

    def forward(self, x: Tensor) -> Tensor:
        once, twice = torch.mm(x, self.weight), torch.mm(x + 1, self.weight)
        return ((once + self.more) ** 2).sum() + (twice + self.more[0] * twice).sum()


def test_other_sums_of_a_product_stay() -> None:
    model, arguments = Scaled(), (torch.randn(5, 4).double(),)
    made = plan(model, Mesh({"a": 2}), example=arguments)
    assert_same(made, model, arguments)
    # The sum of both gradients of the weight.
    (one,) = [node for node in made.graph.nodes if node.target == aten.addmm.default]
    assert one.args[0].target == aten.mm.default


class Views(nn.Module):
    """Reshapes and transposes in a row; some of them are used twice, and one is of an input."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 6).double())

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = (x * self.weight).t()
        once = torch.tanh(y.t()).reshape(3, 8).reshape(2, 12)
        twice = torch.sin(y).reshape(24)
        return (once.reshape(24) + twice.view(4, 6).view(24)).sum(), twice + 1, self.weight.t().t()


def test_views_of_views_are_one() -> None:
    torch.manual_seed(0)
    model, arguments = Views(), (torch.randn(4, 6).double(),)
    made = plan(model, Mesh({"a": 2}), example=arguments)
    before = targets(made)
    assert_same(made, model, arguments)
    after = targets(made)
    assert after.count(aten.t.default) < before.count(aten.t.default)
    reshapes = [node for node in made.graph.nodes if node.target == aten.reshape.default]
    shared = [node for node in reshapes if len(node.users) > 1]  # which may copy, once
    assert any(user.target == aten.reshape.default for node in shared for user in node.users)
    for node in reshapes:
        if len(node.users) == 1:
            (user,) = node.users
            assert user.target != aten.reshape.default


class Maxima(nn.Module):
    """A maximum of overlapping windows, with equal values in some of them."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones((), dtype=torch.double))

    def forward(self, x: Tensor) -> Tensor:
        return (F.max_pool2d(F.relu(x * self.scale), 3, 2, 1) ** 2).sum()


def test_maxima_are_searched_once() -> None:
    model, arguments = Maxima(), (torch.randn(2, 3, 12, 17).double(),)
    made = plan(model, Mesh({"space": 3}), example=arguments, inputs=[SPACE], costs=SLOW)
    names = [str(target) for target in targets(made)]
    assert sum("max_pool" in name for name in names) == 2
    assert_same(made, model, arguments)
    assert not any("max_pool" in str(target) for target in targets(made))
