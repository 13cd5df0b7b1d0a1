"""Annotations: what they say reaches the tensors, and a mistake is named once, with its place."""

from typing import Any

import pytest
import torch
from torch import nn

from dlcp_client.spmd.annotations import OPEN, annotate, annotations_of, checked
from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.sharding import Split
from dlcpd.contract.errors import BadConfig

MESH = Mesh({"data": 2, "model": 3})


def layers() -> nn.Module:
    return nn.ModuleDict({"up": nn.Linear(6, 12), "down": nn.Linear(12, 6)})


def test_patterns_name_tensors_and_later_ones_win() -> None:
    model = layers()
    annotate(model, MESH, {"*.weight": ("model", None), "down.*t": (None, OPEN)}, priority=2)
    found = annotations_of(model, MESH)
    assert set(found) == {"up.weight", "down.weight"}
    assert found["up.weight"].sharding == ((Split("model"),), ())
    assert found["down.weight"].sharding == ((), ())
    assert found["down.weight"].is_open == (False, True)
    assert found["up.weight"].priority == 2
    assert found["up.weight"].source == "annotation '*.weight'"


def test_several_axes_of_one_dimension() -> None:
    said = checked((("data", "model"), None), MESH, (12, 5), name="x", source="here")
    assert said.sharding == ((Split("data"), Split("model")), ())


@pytest.mark.parametrize(
    ("patterns", "said"),
    [
        ({"upp.weight": ("model", None)}, "'upp.weight' names no parameter of ModuleDict; the "
         "nearest is up.weight"),
        ({"up.weight": ("modle", None)}, "axis 'modle' of the annotation of up.weight is not in "
         "the mesh data=2 x model=3: use one of data, model, or None"),
        ({"up.weight": (3, None)}, "axis 3 of the annotation"),
        ({"up.weight": ("model", "model")}, "axis 'model' occurs twice"),
        ({"up.weight": (("data", "data"), None)}, "axis 'data' occurs twice"),
        ({"up.weight": ("model",)}, "up.weight has 2 dimensions, and its annotation is"),
        ({"up.bias": "model"}, "up.bias has 1 dimensions, and its annotation is 'model'"),
        ({"up.weight": (("model", "data"), None)}, "come in the order of the mesh"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_and_keeps_nothing(patterns: dict[str, Any], said: str) -> None:
    model = layers()
    with pytest.raises(BadConfig, match=said):
        annotate(model, MESH, {"down.weight": ("model", None), **patterns})
    assert annotations_of(model, MESH) == {}


@pytest.mark.parametrize(
    ("dims", "size", "said"),
    [
        (("model", None), 2, "dimension 0 of x has 2 rows, fewer than the 3 shards of model"),
        ((("data", "model"), None), 5, "has 5 rows, fewer than the 6 shards of data.model"),
        ((("data", "model"), None), 8, "has 8 rows for data.model: several axes"),
    ],
)
def test_a_dimension_that_does_not_fit_is_named(dims: Any, size: int, said: str) -> None:
    with pytest.raises(BadConfig, match=said):
        checked(dims, MESH, (size, 4), name="x", source="here")


@pytest.mark.parametrize("priority", [-1, 10, 1.0])
def test_a_wrong_priority_is_named(priority: Any) -> None:
    with pytest.raises(BadConfig, match=r"priority .* of up.weight: use a whole number, 0\.\.9"):
        annotate(layers(), MESH, {"up.weight": ("model", None)}, priority=priority)


def test_one_tensor_with_two_names_has_one_annotation() -> None:
    model = nn.ModuleDict({"a": nn.Linear(6, 6), "b": nn.Linear(6, 6)})
    model["b"].weight = model["a"].weight
    with pytest.raises(BadConfig, match=r"a.weight and b.weight are one tensor"):
        annotate(model, MESH, {"a.weight": ("model", None), "b.weight": (None, "model")})
    annotate(model, MESH, {"b.weight": ("model", None)})
    assert annotations_of(model, MESH)["a.weight"].source == "annotation 'b.weight'"


def test_a_model_has_one_mesh() -> None:
    model = layers()
    annotate(model, MESH, {"up.weight": ("model", None)})
    with pytest.raises(BadConfig, match="has annotations for the mesh data=2 x model=3"):
        annotate(model, Mesh({"model": 2}), {"up.weight": ("model", None)})
    with pytest.raises(BadConfig, match="not for model=2: use that mesh"):
        annotations_of(model, Mesh({"model": 2}))


def test_a_buffer_may_be_annotated() -> None:
    model = layers()
    model.register_buffer("table", torch.zeros(6))
    annotate(model, MESH, {"table": ("model",)})
    assert annotations_of(model, MESH)["table"].sharding == ((Split("model"),),)
