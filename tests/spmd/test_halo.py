"""Operations divided in space: equal to one device, and only halos are sent."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dlcp_client.spmd.annotations import annotate
from dlcp_client.spmd.collectives import halo_exchange, halo_reduce
from dlcp_client.spmd.costs import Costs
from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.planning import plan
from dlcp_client.spmd.runtime import GroupRanks
from dlcp_client.spmd.windows import Window, counts_for
from tests.spmd.halo_cases import CASES, RANKS, WIDTHS, Of, halo_rows
from tests.spmd.one_device import assert_equal, counts

MESH = Mesh({"space": RANKS})
DEAR = Costs(latency=0.0, bytes_per_s=1e3)  # a network on which a person would send halos
HALOS = {"halo_exchange", "halo_reduce", "all_reduce"}


def divided(function: Any, shapes: Any, x: Tensor, dims: Any, mesh: Mesh = MESH) -> Any:
    model = Of(function, *shapes)
    partition = plan(model, mesh, example=(x,), inputs=[dims], costs=DEAR)
    assert_equal(partition, model, (x,))
    return partition


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", CASES)
def test_width_divided_by_3_needs_halos_only(name: str, width: int) -> None:
    function, shapes = CASES[name]
    x = torch.randn(2, 2, 24, width).double()
    partition = divided(function, shapes, x, (None, None, None, "space"))
    assert counts(partition).keys() <= HALOS, counts(partition)
    if "transposed" not in name:  # whose operand is a shard, without a halo
        # The backward pass of a roll, say, has its own.
        first = next((one for one in partition.collectives if "exchange" in one.kind), None)
        assert (rows_sent(first) if first else 0) == halo_rows(function, shapes, x)


def rows_sent(one: Any) -> int:
    """By all ranks."""
    *_, window, _ = one.node.args
    return sum(sum(counts_for(Window(*window), rank, 3)[0]) for rank in range(3))


@pytest.mark.parametrize("mesh", [Mesh({"x": 2, "y": 2}), Mesh({"x": 3, "y": 1})], ids=str)
@pytest.mark.parametrize("dims", [1, 3])
def test_convolution_and_pooling_of_1_and_3_dimensions(dims: int, mesh: Mesh) -> None:
    conv: Any = getattr(F, f"conv{dims}d")
    back: Any = getattr(F, f"conv_transpose{dims}d")
    pool: Any = getattr(F, f"max_pool{dims}d")
    average: Any = getattr(F, f"avg_pool{dims}d")

    def function(x: Tensor, up: Tensor, down: Tensor, bias: Tensor) -> Tensor:
        y = average(pool(conv(x, up, bias, padding=1), 3, 1, 1), 2)
        z: Tensor = back(y, down, stride=2)
        return z * 2

    shapes = [(4, 2, *[3] * dims), (4, 3, *[2] * dims), (4,)]
    space = ("x", "y", None)[:dims]
    x = torch.randn(2, 2, *(14, 8, 6)[:dims]).double()
    divided(function, shapes, x, (None, None, *space), mesh)


def test_channels_and_batch_are_divided_as_in_a_product() -> None:
    mesh = Mesh({"data": 2, "model": 2})
    shapes = (6, 3, 3, 3), (2, 6, 1, 1), (6,)
    model = Of(lambda x, a, b, c: F.conv2d(torch.tanh(F.conv2d(x, a, c)), b), *shapes)
    annotate(model, mesh, {"weights.0": ("model", None, None, None)})
    x = torch.randn(4, 3, 8, 8).double()
    partition = plan(model, mesh, example=(x,), inputs=[("data", None, None, None)])
    assert_equal(partition, model, (x,))
    # Per axis: sums of two products, and of gradients.
    assert set(counts(partition)) == {"all_reduce"}


def test_indices_of_maxima_are_those_of_the_whole_image() -> None:
    def function(x: Tensor) -> Tensor:
        y, at = F.max_pool2d(x, 2, return_indices=True)
        return y * at

    x = torch.randn(2, 2, 4, 12).double()
    partition = divided(function, [], x, (None, None, None, "space"))
    assert "all_gather" in counts(partition)


def test_maxima_of_whole_numbers_need_the_whole_image() -> None:
    def function(x: Tensor) -> Tensor:
        return x[:, :, :1, :1] * F.max_pool2d((x.detach() * 9).long(), 2).double()

    x = torch.randn(2, 2, 4, 12).double()
    divided(function, [], x, (None, None, None, "space"))


def test_two_axes_of_one_dimension_have_no_halo() -> None:
    mesh = Mesh({"x": 2, "y": 2})
    x = torch.randn(2, 2, 3, 16).double()
    function, shapes = CASES["kernel 3"]
    divided(function, shapes, x, (None, None, None, ("x", "y")), mesh)


def test_an_axis_of_one_rank_has_no_halo() -> None:
    function, shapes = CASES["stride 2"]
    x = torch.randn(2, 2, 3, 7).double()
    partition = divided(function, shapes, x, (None, None, None, "space"), Mesh({"space": 1}))
    assert not partition.collectives


@st.composite
def windows(draw: st.DrawFn) -> Window:
    size, stride, length = (draw(st.integers(1, most)) for most in (30, 4, 5))
    start, dilation = draw(st.integers(-4, 4)), draw(st.integers(1, 3))
    if draw(st.booleans()):
        start, stride = start + size - 1, -stride
    anchor = max(size // abs(stride), 1)
    return Window(size, stride, start, length, anchor, dilation=dilation)


@given(windows(), st.integers(1, 4))
def test_each_row_of_a_window_comes_once_and_goes_back(window: Window, parts: int) -> None:
    size, length, dilation, anchor = window.size, window.length, window.dilation, window.anchor
    stride, backwards = abs(window.stride), window.stride < 0
    rows, shard = window.rows(parts), -(-size // parts)
    whole = torch.arange(1.0, size + 1)
    given_ = [F.pad(one, (0, shard - len(one)), value=-1.0) for one in pieces_of(whole, shard)]
    given_ += [torch.full((shard,), -1.0)] * (parts - len(given_))
    for rank, found in enumerate(halo_exchange(given_, 0, window, 0.0)):
        for row in range(rank * rows, min((rank + 1) * rows, anchor)):
            for k in range(0, length, dilation):
                at = window.start + window.stride * row + k
                place = row - rank * rows if not backwards else rows - 1 - (row - rank * rows)
                want = whole[at] if 0 <= at < size else 0.0
                assert found[place * stride + k] == want
    # The adjoint: <window(x), y> = <x, back(y)>, for y on rows that are read.
    ys = [torch.randn(window.reach(parts)) for _ in range(parts)]
    own = [F.pad(one.clamp(min=0), (0, 0)) for one in given_]
    left = sum(float(a @ b) for a, b in zip(halo_exchange(own, 0, window, 0.0), ys, strict=True))
    right = sum(float(a @ b) for a, b in zip(own, halo_reduce(ys, 0, window), strict=True))
    assert left == pytest.approx(right, rel=1e-4, abs=1e-3)


def pieces_of(x: Tensor, rows: int) -> list[Tensor]:
    return list(torch.split(x, rows))


class WithoutPeers(GroupRanks):
    """Rank 1 of three, without groups: a collective would fail."""

    def __init__(self) -> None:
        self.mesh, self.at = Mesh({"space": 3}), {"space": 1}


def test_a_kernel_of_one_row_needs_no_operation_and_no_copy() -> None:
    x = torch.randn(2, 4, 5)
    window = (12, 1, 0, 1, 12, False, 1)
    ranks = WithoutPeers()
    for made in (
        ranks.halo_exchange(x, "space", 1, window, 0.0),
        ranks.halo_reduce(x, "space", 1, window),
    ):
        assert made.data_ptr() == x.data_ptr() and torch.equal(made, x)
