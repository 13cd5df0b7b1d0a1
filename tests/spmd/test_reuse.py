"""Layers that are alike are captured once, and the graph is that of the whole capture."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from dlcp_client.spmd import capture as capturing
from dlcp_client.spmd import reuse, stand_ins
from dlcp_client.spmd.annotations import annotate
from dlcp_client.spmd.capture import Captured, capture
from dlcp_client.spmd.marks import mesh_split
from dlcp_client.spmd.planning import plan
from tests.spmd import layered_models as models
from tests.spmd import layers_apart as apart
from tests.spmd.layered_models import LAYERS, MESH, WIDTH, Layer, Layered
from tests.spmd.models import GPT
from tests.spmd.more_models import Residual
from tests.spmd.one_device import assert_equal


@pytest.fixture
def stood_in(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of layers that others stood in for, twice each: torch runs a model twice."""
    found: list[int] = []
    call = stand_ins.call

    def counted(number: int, operands: Any) -> Any:
        found.append(number)
        return call(number, operands)

    monkeypatch.setattr(reuse, "call", counted)
    return found


def captured(model: nn.Module, example: tuple[Tensor, ...], *, whole: bool) -> Captured:
    """`whole`: without reuse."""
    with pytest.MonkeyPatch.context() as patch:
        if whole:
            patch.setattr(capturing, "joint_with_layers", lambda *_: None)
        return capture(model, MESH, example)


def text(captured: Captured) -> list[Any]:
    """The nodes, with their arguments, forms and lines, without their names; and what the inputs
    and outputs are."""
    names: dict[fx.Node, str] = {}
    lines: list[Any] = []
    for node in captured.graph.nodes:
        names[node] = f"%{len(names)}"
        values = node.meta.get("val")
        each = values if isinstance(values, list | tuple) else [values]
        forms = [(x.shape, x.stride(), x.dtype) for x in each if isinstance(x, Tensor)]
        args = fx.node.map_arg((node.args, node.kwargs), lambda one: names[one])
        target = node.target if node.op == "call_function" else node.op
        lines.append((str(target), str(args), forms, captured.lines.get(node)))
    ports = [(one.kind, one.name, one.value is None) for one in captured.inputs + captured.outputs]
    return [lines, ports, list(captured.marks)]


def assert_same(model: nn.Module, *example: Tensor) -> None:
    before = {name: x.clone() for name, x in model.state_dict().items()}
    found, right = (text(captured(model, example, whole=whole)) for whole in (False, True))
    for one, other in zip(found, right, strict=True):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert a == b
    for name, x in model.state_dict().items():
        assert torch.equal(x, before[name])
    for module in model.modules():
        assert "forward" not in vars(module)


def x(**options: Any) -> Tensor:
    return torch.randn(4, 3, WIDTH, **options)


ALIKE: dict[str, Callable[[], nn.Module]] = {
    "layers": lambda: Layered(Layer),
    "dropout": lambda: Layered(lambda at: Layer(at, 0.3)),
    "evaluation": lambda: Layered(lambda at: Layer(at, 0.3)).eval(),
    "mask": lambda: models.WithMask(models.Masked),
    "several results": lambda: models.WithPairs(models.Pair),
    "running statistics": lambda: Layered(models.Normed),
    "other values of buffers": models.other_values,
    "attention": lambda: Layered(models.AttendingLayer),
    "hook on a layer": lambda: apart.hooked(inside=False),
    "an attribute is read": lambda: apart.Inspecting(Layer),
    "without gradients": lambda: Layered(Layer).requires_grad_(False),
    "encoder": models.encoder,
    "sequence": lambda: nn.Sequential(*map(Layer, range(LAYERS)), nn.Flatten(0)),
    "region outside": lambda: models.WithRegion(Layer),
}


# The first layer has an argument that needs no gradient.
EXPECTED = {"encoder": 3, "sequence": LAYERS - 1, "region outside": LAYERS - 1}


@pytest.mark.parametrize("name", ALIKE)
def test_layers_that_are_alike_are_captured_once(name: str, stood_in: list[int]) -> None:
    model = ALIKE[name]()
    assert_same(model, x())
    assert len(stood_in) == 2 * EXPECTED.get(name, LAYERS)


# How often layers are stood in for: two times each that is like others. Where the calls are read,
# it is noticed after the first run.
OTHERS: dict[str, tuple[int, Callable[[], nn.Module]]] = {
    "index": (8, lambda: Layered(apart.Indexed)),
    "calls are read": (LAYERS, lambda: apart.Counted(apart.Counting)),
    "one backward pass": (0, lambda: Layered(lambda at: apart.Reversing(at, [2]))),
    "every backward pass": (0, lambda: Layered(lambda at: apart.Reversing(at, range(9)))),
    "losses as attributes": (0, lambda: apart.WithLosses(apart.Leaking)),
    "losses in a list": (0, lambda: apart.WithList(apart.Appending)),
    "closure": (0, lambda: apart.WithClosure(apart.Closing)),
    "changes an operand": (0, lambda: apart.WithChanges(apart.Changing)),
    "returns an operand": (0, lambda: Layered(apart.Viewing)),
    "no gradients inside": (0, lambda: Layered(apart.Silent)),
    "saved tensors": (0, lambda: Layered(apart.Packing)),
    "region inside": (0, lambda: Layered(apart.Regional)),
    "bfloat16 inside": (8, lambda: Layered(apart.Lower)),
    "no gradients outside": (0, lambda: apart.Frozen(Layer)),
    "checkpoints": (0, lambda: apart.Checkpointed(Layer)),
    "called twice": (0, lambda: apart.Twice(Layer)),
    "weights are read": (0, lambda: apart.Decaying(Layer)),
    "subclass": (8, lambda: Layered(lambda at: apart.Subclass(at) if at == 2 else Layer(at))),
    "tied": (6, apart.tied),
    "hook inside": (8, lambda: apart.hooked(inside=True)),
    "one in evaluation": (8, apart.one_in_evaluation),
    "kernel": (8, lambda: Layered(lambda at: models.AttendingLayer(at, 2))),
    "frozen": (6, apart.frozen_weights),
    "too few": (0, lambda: Layered(Layer, 2)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_layers_that_differ_are_not(name: str, stood_in: list[int]) -> None:
    number, make = OTHERS[name]
    assert_same(make(), x())
    assert len(stood_in) == number


def test_layers_that_count_their_calls_are_not_alike(stood_in: list[int]) -> None:
    """Such a graph depends on how often the model has run."""
    apart.Called.calls = 0
    capture(Layered(apart.Called), MESH, (x(),))
    assert not stood_in


@pytest.mark.parametrize("layers", [3, 6])
def test_transformer_with_marks(layers: int, stood_in: list[int]) -> None:
    def mark(y: Tensor) -> Tensor:
        return mesh_split(y, MESH, (None, "model", None), priority=1)

    tokens = torch.randint(0, 50, (4, 8))
    assert_same(GPT(layers=layers, mark=mark), tokens, tokens)
    assert len(stood_in) == 2 * layers


def test_blocks_of_images(stood_in: list[int]) -> None:
    blocks = [Residual(4, 4, 1) for _ in range(4)]
    assert_same(nn.Sequential(nn.Conv2d(3, 4, 3), *blocks), torch.randn(2, 3, 8, 9))
    assert len(stood_in) == 2 * 4


LARGER: dict[str, Callable[[], nn.Module]] = {
    "running statistics": lambda: Layered(models.Normed),
    "an expanded gradient": lambda: models.Pooled(Layer),
    "results that others use": lambda: models.Skipping(Layer),
}


@pytest.mark.parametrize("name", LARGER)
def test_a_divided_model_of_repeated_layers_equals_one_device(
    name: str, stood_in: list[int]
) -> None:
    model, example = LARGER[name]().double(), x().double()
    patterns = {"*.up.weight": ("model", None), "layers.3.up.weight": (None, "model")}
    annotate(model, MESH, patterns)
    made = plan(model, MESH, example=(example,), inputs=[("data", None, None)])
    assert len(stood_in) == 2 * LAYERS
    held = {
        one.name: made.plan.shardings[one.value] for one in made.plan.captured.inputs if one.value
    }
    assert held["layers.2.up.weight"][0] and not held["layers.3.up.weight"][0]
    assert_equal(made, model, (example,))
