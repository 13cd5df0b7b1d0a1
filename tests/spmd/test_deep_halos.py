"""Chains of windows: a rank computes rows of its neighbours itself, and exchanges fewer halos."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from dlcp_client.spmd.collectives import Position
from dlcp_client.spmd.costs import WORTHWHILE, Costs
from dlcp_client.spmd.halves import halves_of
from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.partitioner import Partition
from dlcp_client.spmd.planning import plan
from tests.spmd.more_models import Residual
from tests.spmd.one_device import assert_equal, counts

DEAR = Costs(latency=0.0, bytes_per_s=1e3)  # a network on which a person would send halos
SPACE = (None, None, None, "space")
THREE = (4, 2, 3, 3), (3, 4, 3, 3)  # kernels
Layer = Callable[..., Tensor]


class Chain(nn.Module):
    """A function of weights and an image, which has no gradient."""

    def __init__(self, function: Layer, *shapes: tuple[int, ...]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weights = nn.ParameterList(torch.randn(one).double() for one in shapes)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return (torch.tanh(self.function(x, *self.weights)) ** 2).sum()


def divided(
    function: Layer, shapes: Any, x: Tensor, ranks: int = 3, costs: Costs = DEAR
) -> Partition:
    """The program, which is equal to one device."""
    model = Chain(function, *shapes)
    made = plan(model, Mesh({"space": ranks}), example=(x,), inputs=[SPACE], costs=costs)
    made.graph.lint()
    assert_equal(made, model, (x,))
    return made


def memory(node: Any) -> Any:
    """The tensor of which it is a slice."""
    return memory(node.args[0]) if node.target == torch.ops.aten.slice.Tensor else node


def halos(made: Partition) -> tuple[int, int]:
    """Exchanges, and sums of windows."""
    found = counts(made)
    return found.get("halo_exchange", 0), found.get("halo_reduce", 0)


def image(width: int = 24) -> Tensor:
    return torch.randn(2, 2, 6, width, generator=torch.Generator().manual_seed(0)).double()


def chain(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    y = F.max_pool2d(F.relu(F.conv2d(x, a, padding=1)), 3, 1, 1)
    return F.conv2d(y, b, padding=1)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_a_chain_of_windows_has_one_exchange(ranks: int) -> None:
    made = divided(chain, THREE, image(), ranks)
    assert halos(made) == (1, 0)
    (one,) = [one for one in made.collectives if one.kind == "halo_exchange"]
    assert one.sent == (1 + (ranks > 2)) * 3 * 2 * 2 * 6 * 8  # rows, which are of 2 x 2 x 6 numbers


def test_a_margin_may_be_wider_than_the_shard_of_a_neighbour() -> None:
    assert halos(divided(chain, THREE, image(8), 4)) == (1, 0)


def test_a_gradient_of_the_input_goes_back_once() -> None:
    """It is a product with a row of each rank's own."""

    def scaled(x: Tensor, a: Tensor, b: Tensor, rows: Tensor) -> Tensor:
        return chain(torch.tanh(x * rows), a, b)

    assert halos(divided(scaled, (*THREE, (24,)), image())) == (1, 1)


def test_a_stride_takes_wider_margins() -> None:
    def strided(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        y = F.conv2d(x, a, padding=1, stride=2)
        return F.conv2d(torch.tanh(y), b, padding=1)

    made = divided(strided, THREE, image(48))
    assert halos(made) == (1, 0)
    (one,) = [one for one in made.collectives if one.kind == "halo_exchange"]
    window: Any = one.node.args[4]
    assert window[1:4] == (2, -3, 7)  # 3 rows before and 2 after


def test_an_uneven_width_keeps_its_exchanges() -> None:
    assert halos(divided(chain, THREE, image(25))) == (3, 2)


def test_work_that_takes_longer_than_an_exchange_is_not_done_twice() -> None:
    """The first result, of 2 x 4 x 6 rows and 18 multiplications for each, has a margin of 4."""
    work = 2 * 4 * 6 * 18 * 4
    for times, wanted in ((0.99, 2), (1.01, 1)):
        found, _ = halos(divided(chain, THREE, image(), 3, limited(work * times)))
        assert found == wanted


def limited(work: float) -> Costs:
    """Of a core that needs as long for so much work as an exchange takes."""
    return Costs(latency=0.0, bytes_per_s=1e3, work_per_s=work / WORTHWHILE)


def test_readers_that_need_other_values_outside_have_copies() -> None:
    """Of the same tensor: minus infinity for maxima, zeros for a convolution."""

    def both(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        y = torch.tanh(F.conv2d(x, a, padding=1))
        return F.conv2d(y, b, padding=1).sum(1) + F.max_pool2d(y.detach(), 3, 1, 1).sum(1)

    made = divided(both, THREE, image())
    assert halos(made) == (1, 0)
    assert sum("clone" in str(node.target) for node in made.graph.nodes) == 2


def test_a_shared_operand_and_a_sum_of_two_ways() -> None:
    def residual(x: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        y = F.relu(F.conv2d(x, a, padding=1))
        z = F.relu(y + F.conv2d(y, b, padding=1))
        return F.conv2d(z, c, padding=2)

    shapes = [(4, 2, 3, 3), (4, 4, 3, 3), (3, 4, 5, 5)]
    assert halos(divided(residual, shapes, image(36))) == (1, 0)


def test_averages_and_one_row_kernels() -> None:
    def function(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        y = F.avg_pool2d(F.conv2d(x, a), 3, 1, 1)
        return F.avg_pool2d(F.gelu(F.conv2d(y, b)), 3, 1, 1)

    assert halos(divided(function, [(4, 2, 1, 1), (3, 4, 1, 1)], image())) == (1, 0)


def test_a_gradient_that_is_not_only_added_goes_back() -> None:
    """Batch norm has means of gradients: the sum over all ranks of each row must be known."""
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), Residual(4, 4, 1)).double()
    x = image()

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.model(x)
            return found.square().sum()

    made = plan(Loss(), Mesh({"space": 3}), example=(x,), inputs=[SPACE], costs=DEAR)
    assert_equal(made, Loss(), (x,))
    assert halos(made) == (1, 1)
    # A gradient without a margin reads a part of a window that the forward pass has filled.
    backward = halves_of(made.graph, made.plan.captured).backward.graph
    kept = [node for node in backward.nodes if node.op == "placeholder"]
    calls = [node for node in backward.nodes if node.op == "call_method"]
    filled = [node.args[1] for node in calls if node.target == "fill_outside"]
    assert filled and not {memory(node) for node in filled} & {*kept}


def test_batches_of_another_axis_and_both_dimensions() -> None:
    model = Chain(chain, *THREE)
    for dims in (("data", None, None, "space"), (None, None, "data", "space")):
        x = torch.randn(2, 2, 8, 24).double()
        mesh = Mesh({"data": 2, "space": 3})
        made = plan(model, mesh, example=(x,), inputs=[dims], costs=DEAR)
        assert_equal(made, model, (x,))
        found = [one.axis for one in made.collectives if one.kind == "halo_exchange"]
        assert found.count("space") == (1 if dims[0] else 3)


def test_rows_outside_of_the_dimension_are_filled_in_place() -> None:
    for rank, wanted in enumerate(([9, 9, 9, 1, 1, 1], [9, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 9])):
        x = torch.ones(6)
        made = Position(Mesh({"space": 3}), rank).fill_outside(x, "space", 0, (3, 1), 9.0)
        assert made is x and x.tolist() == wanted, rank


CALLS: dict[str, Layer] = {
    "conv": lambda x, w: F.conv2d(x, w, padding=1),
    "dilated": lambda x, w: F.conv2d(x, w, padding=2, dilation=2),
    "strided": lambda x, w: F.conv2d(x, w, padding=1, stride=(1, 2)),
    "residual": lambda x, w: x + torch.tanh(F.conv2d(x, w, padding=1)),
    "gate": lambda x, w: x * torch.sigmoid(F.conv2d(x, w, padding=1)),
    "maximum": lambda x, _: F.max_pool2d(x, 3, 1, 1),
    "average": lambda x, _: F.avg_pool2d(x, 3, 1, 1),
    "halved": lambda x, _: F.max_pool2d(x, (1, 2)),
    "relu": lambda x, _: F.relu(x),
    "mean": lambda x, _: x - x.mean((2, 3), keepdim=True),
    "rows": lambda x, _: x * x.sum(1, keepdim=True),
}


@given(st.lists(st.sampled_from(sorted(CALLS)), min_size=1, max_size=6), st.integers(2, 4))
def test_random_chains_equal_one_device(names: list[str], ranks: int) -> None:
    def function(x: Tensor, *weights: Tensor) -> Tensor:
        for name, weight in zip(names, weights, strict=True):
            x = CALLS[name](x, weight) / 2
        return x

    divided(function, [(2, 2, 3, 3)] * len(names), image(48), ranks)
