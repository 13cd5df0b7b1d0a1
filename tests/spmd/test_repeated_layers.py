"""Repeated layers are planned once: 24 layers need at most twice the decisions of 2."""

import sys
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dlcp_client.spmd import propagation
from dlcp_client.spmd.annotations import annotate
from dlcp_client.spmd.choice import Chooser
from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.planning import plan
from tests.spmd.models import GPT, TENSOR_PARALLEL
from tests.spmd.one_device import assert_equal, counts

BATCH = [("data", None), ("data", None)]


@pytest.fixture
def decisions(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Calls of what costs time in a plan: a rule, a step of propagation, a candidate."""
    found: Counter[str] = Counter()

    def count(holder: Any, name: str) -> None:
        of = getattr(holder, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            found[name] += 1
            return of(*args, **kwargs)

        monkeypatch.setattr(holder, name, counted)

    count(propagation, "rule_of")
    count(propagation._Propagation, "_pass_on")  # noqa: SLF001  # counted, not called
    count(Chooser, "_choice")
    return found


def planned(layers: int, ranks: int = 2) -> Any:
    model = GPT(layers=layers)
    mesh = Mesh({"data": ranks, "model": 2})
    annotate(model, mesh, TENSOR_PARALLEL)
    example = tuple(torch.randint(0, 50, (512, 8)) for _ in range(2))
    return plan(model, mesh, example=example, inputs=BATCH)


def test_24_layers_need_at_most_twice_the_decisions_of_2(decisions: Counter[str]) -> None:
    planned(2)
    few = dict(decisions)
    decisions.clear()
    made = planned(24)
    assert decisions.keys() == few.keys()
    for name, number in decisions.items():
        assert number <= 2 * few[name], (name, number, few[name])
    assert counts(made)["all_reduce"] >= 4 * 24


def test_24_layers_need_at_most_twice_the_python_of_2() -> None:
    """Calls of functions, of torch too, which do not depend on how busy a machine is."""
    counts_of = {layers: _calls(layers) for layers in (2, 2, 24)}  # the first fills caches
    assert counts_of[24] <= 2 * counts_of[2], counts_of


def _calls(layers: int) -> int:
    found = 0

    def count(_frame: Any, event: str, _about: Any) -> None:
        nonlocal found
        found += event == "call"

    sys.setprofile(count)
    try:
        planned(layers)
    finally:
        sys.setprofile(None)
    return found


def test_256_times_the_ranks_need_the_same_decisions(decisions: Counter[str]) -> None:
    planned(2, ranks=1)
    few = dict(decisions)
    decisions.clear()
    planned(2, ranks=256)
    for name, number in decisions.items():
        assert number <= 1.3 * few[name]


class Layers(nn.Module):
    """Equal layers, each with a weight of its own."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.randn(6, 6).double() / 3 for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for weight in self.weights:
            x = torch.tanh(x @ weight)
        return x.sum()


def test_a_layer_with_another_annotation_is_planned_apart() -> None:
    model, mesh = Layers(20), Mesh({"a": 2})
    annotate(model, mesh, {"weights.*": ("a", None), "weights.10": (None, "a")})
    x = torch.randn(4, 6).double()
    made = plan(model, mesh, example=(x,))
    assert_equal(made, model, (x,))
    held = [made.plan.shardings[port.value] for port in made.plan.captured.inputs if port.value]
    columns = [at for at, sharding in enumerate(held[:20]) if sharding[1]]
    assert columns == [10]
