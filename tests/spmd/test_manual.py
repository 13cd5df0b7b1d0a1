"""Manual regions: equal to one device, forward and backward, and each mistake named by its line."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dlcp_client import spmd
from dlcp_client.spmd.capture import Kind
from dlcp_client.spmd.meshes import Mesh
from dlcpd.contract.errors import BadConfig
from tests.spmd.one_device import assert_equal, counts, run
from tests.spmd.regions import LAYERS, ROWS, WIDTH, layer, rows_of_x

MESHES = [
    Mesh({"model": 1}),
    Mesh({"model": 2}),
    Mesh({"model": 3}),
    Mesh({"model": 4}),
    Mesh({"data": 2, "model": 2}),
    Mesh({"model": 2, "idle": 3}),
]
ROW = ("a", None)


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_a_region_equals_one_device(name: str, mesh: Mesh) -> None:
    """All ranks, and the region's threads of one device, have the values of a model without."""
    model, right = layer(name, mesh), layer(name, None)
    x = rows_of_x()
    inputs = [("data", None)] if "data" in mesh.sizes else []
    partition = spmd.plan(model, mesh, example=(x,), inputs=inputs)
    assert_equal(partition, model, (x,))
    right(x).backward()
    found = run(partition, model, (x,))
    for of, parameter in right.named_parameters():
        torch.testing.assert_close(found[Kind.GRADIENT, of], parameter.grad, rtol=1e-9, atol=1e-9)


def test_a_region_has_the_collectives_that_it_calls() -> None:
    mesh = Mesh({"model": 2, "idle": 3})
    partition = spmd.plan(layer("row parallel", mesh), mesh, example=(rows_of_x(),))
    # Forward and backward; the gradient of a result that all ranks have is shared out first.
    found = [one for one in partition.collectives if one.axis == "model"]
    calls = [one for one in found if "a manual region" in spmd.explain(partition)]
    assert calls and counts(partition)["all_reduce"] == 2
    # The region does not know the other axis.
    assert {one.axis for one in partition.collectives} == {"model"}
    sent = 2 * ROWS * WIDTH * 8 / 2
    assert [one.sent for one in found if one.kind == "all_reduce"] == [sent] * 2


def test_explain_names_the_line_of_a_region_s_collective() -> None:
    mesh = Mesh({"model": 2})
    text = spmd.explain(spmd.plan(layer("ring", mesh), mesh, example=(rows_of_x(),)))
    assert "a manual region calls it" in text and 'x = spmd.shift(x, "model")' in text


def test_repeated_layers_with_regions() -> None:
    mesh = Mesh({"model": 2})
    model = nn.Sequential(*[_Times(mesh) for _ in range(10)]).double()
    x = rows_of_x()
    assert_equal(spmd.plan(model, mesh, example=(x,)), model, (x,))


class _Times(nn.Module):
    """A region as a layer of its own."""

    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))
        self.region = spmd.manual(
            lambda x, w: torch.tanh(spmd.shift(x, "model", -1) * w),
            mesh,
            inputs=[("model", None), None],
            outputs=[("model", None)],
        )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.region(x, self.weight)
        return y


class Of(nn.Module):
    """A weight, and a region of a function of x and the weight."""

    def __init__(self, function: Callable[..., Any], **border: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.function, self.border = function, border

    def forward(self, x: Tensor) -> Any:
        y = x * self.weight
        border = {"inputs": [ROW], "outputs": [ROW], **self.border}
        return spmd.manual(lambda x: self.function(x, y, self), MESH, **border)(y)


MESH = Mesh({"a": 2, "b": 2, "c": 3})
LINE = r"at test_manual.py:\d+: "


@pytest.mark.parametrize(
    ("function", "border", "said"),
    [
        (lambda x, y, m: x * m.weight, {},
         "a manual region reads a tensor that is not an argument " + LINE),
        (lambda x, y, m: x @ y.t(), {}, "reads a tensor that is not an argument " + LINE),
        (lambda x, y, m: F.dropout(x), {}, "random numbers inside a manual region " + LINE),
        (lambda x, y, m: torch.bernoulli(x), {}, "random numbers inside a manual region " + LINE),
        (lambda x, y, m: spmd.keep_whole(x), {}, "keep_whole inside a manual region " + LINE),
        (lambda x, y, m: (x, x), {}, f"the manual region {LINE}.* returns 2 values.*entries, 1"),
        (lambda x, y, m: None, {}, f"the manual region {LINE}.* returns 1 values"),
        (lambda x, y, m: x, {"inputs": [ROW, ROW]}, f"the manual region {LINE}.*takes 2 tensors"),
        (lambda x, y, m: x, {"inputs": [("d", None)]},
         f"axis 'd' of the annotation of argument 0 of the manual region {LINE}"),
        (lambda x, y, m: x, {"inputs": [(spmd.OPEN, None)]}, "argument 0 .* has an open dimension"),
        (lambda x, y, m: x, {"inputs": [(None, "c")]},
         r"dimension 1 of argument 0 of the manual region .* has 4 rows for 3 shards: .*equal"),
        (lambda x, y, m: x.sum(), {}, r"result 0 of the manual region .* has 0 dimensions"),
        (lambda x, y, m: spmd.all_reduce(x, "d"), {}, f"axis 'd' of all_reduce {LINE}.*not in the"),
        (lambda x, y, m: spmd.all_gather(x, "a", 2), {}, f"all_gather {LINE}.*dimension 2 of 2"),
        (lambda x, y, m: spmd.all_to_all(x, "a", 1, -1), {}, f"all_to_all {LINE}.*1 twice"),
        (lambda x, y, m: spmd.reduce_scatter(x, "a"), {},
         f"reduce_scatter {LINE}.*divides 3 rows into 2 parts"),
        (lambda x, y, m: spmd.shift(x.sum(), "a"), {}, f"shift {LINE}.*needs a tensor with rows"),
        (lambda x, y, m: m(x), {}, f"the manual region {LINE}.*is inside another one"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_by_its_line(
    function: Callable[..., Any], border: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadConfig, match=said):
        spmd.plan(Of(function, **border), MESH, example=(torch.ones(6, 4),))


class Leaking(nn.Module):
    """Tensors of a region that are used outside."""

    def __init__(self, *, enters: bool) -> None:
        super().__init__()
        self.weight, self.enters = nn.Parameter(torch.ones(4)), enters

    def forward(self, x: Tensor) -> Any:
        kept: list[Tensor] = []

        def local(x: Tensor) -> Tensor:
            kept.append(x * 2)
            return x

        y = spmd.manual(local, MESH, inputs=[ROW], outputs=[ROW])(x * self.weight)
        if self.enters:
            return y.sum() + spmd.manual(local, MESH, inputs=[ROW], outputs=[ROW])(kept[0]).sum()
        return y, kept[0]


@pytest.mark.parametrize(
    ("enters", "said"),
    [
        (False, f"a tensor of a manual region leaves it {LINE}.*return it"),
        (True, f"a tensor of a manual region enters another one {LINE}"),
    ],
)
def test_a_tensor_that_leaves_without_an_annotation_is_named(enters: bool, said: str) -> None:
    with pytest.raises(BadConfig, match=said):
        spmd.plan(Leaking(enters=enters), MESH, example=(torch.ones(8, 4),))


def test_a_region_of_another_mesh_is_refused() -> None:
    model = Of(lambda x, y, m: x)
    with pytest.raises(BadConfig, match="has the mesh a=2 x b=2 x c=3, and partition a=2: use one"):
        spmd.plan(model, Mesh({"a": 2}), example=(torch.ones(6, 4),))


def test_a_collective_outside_of_a_region_is_refused() -> None:
    with pytest.raises(BadConfig, match=f"all_reduce {LINE}.*is not in a function of spmd.manual"):
        spmd.all_reduce(torch.ones(2), "a")


def local_branches(x: Tensor, y: Tensor, m: nn.Module) -> Tensor:
    return spmd.all_reduce(x, "a") if spmd.axis_index("b") > 0 else spmd.shift(x, "a")


def test_one_device_names_shards_that_call_different_collectives() -> None:
    with pytest.raises(BadConfig, match=r"shard \d+ of the manual region .* must call the same"):
        Of(local_branches)(torch.ones(6, 4))


def test_one_device_raises_the_error_of_a_shard() -> None:
    def failing(x: Tensor, y: Tensor, m: nn.Module) -> Tensor:
        if spmd.axis_index("b") > 0:
            raise ValueError("of one shard")
        return spmd.all_reduce(x, "a")

    with pytest.raises(ValueError, match="of one shard"):
        Of(failing)(torch.ones(6, 4))


def test_one_device_computes_a_bounded_number_of_shards() -> None:
    many = spmd.manual(lambda x: x, Mesh({"a": 65}), inputs=[None], outputs=[None])
    with pytest.raises(BadConfig, match="has 65 shards: one device computes 64 at most"):
        many(torch.ones(2))
