"""Calls between collectives as functions of a compiler: the same numbers, the same collectives."""

import logging
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from dlcp_client.spmd import compiled
from dlcp_client.spmd.annotations import annotate
from dlcp_client.spmd.compiled import CompiledCalls, with_functions
from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.partitioner import Partition
from dlcp_client.spmd.planning import plan
from tests.spmd.models import TENSOR_PARALLEL, gpt, perceptron
from tests.spmd.one_device import assert_equal

MESH = Mesh({"model": 2})


def divided(made: Any, patterns: Any) -> tuple[Partition, nn.Module, tuple[Tensor, ...]]:
    model, arguments = made
    annotate(model, MESH, patterns)
    return plan(model, MESH, example=arguments), model, arguments


def in_functions(partition: Partition) -> tuple[Partition, fx.GraphModule]:
    half = with_functions(fx.GraphModule({}, partition.graph), {})
    return replace(partition, graph=half.graph), half


def one_by_one(monkeypatch: pytest.MonkeyPatch, how: Callable[..., Any]) -> None:
    """`how`: instead of the compiler."""
    monkeypatch.setattr(torch, "compile", lambda calls, **_: how(calls))


def test_each_part_between_collectives_is_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one(monkeypatch, lambda calls: calls.forward)
    partition, model, arguments = divided(gpt(), TENSOR_PARALLEL)
    made, half = in_functions(partition)
    assert_equal(made, model, arguments)
    before = [n.target for n in partition.graph.nodes if n.op == "call_method"]
    assert [n.target for n in made.graph.nodes if n.op == "call_method"] == before
    functions = [one for one in half.children() if isinstance(one, CompiledCalls)]
    left = [n.target for n in made.graph.nodes if n.op == "call_function"]
    left = [one for one in left if one is not operator.getitem]  # results of functions
    attention = "aten._scaled_dot_product_flash_attention_for_cpu.default"
    assert set(map(str, left)) == {attention}  # which may draw random numbers
    assert 0 < len(functions) <= len(before) + len(left) + 1


class Largest(nn.Module):
    """Takes one of two results."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6).double(), nn.Linear(6, 6).double()

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.second(torch.max(torch.tanh(self.first(x)), 1)[0].unsqueeze(1) * x)
        return found


def test_a_call_of_several_results_stays_in_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one(monkeypatch, lambda calls: calls.forward)
    torch.manual_seed(0)
    made = Largest(), (torch.randn(4, 6).double(),)
    partition, model, arguments = divided(made, {"first.weight": ("model", None)})
    assert_equal(in_functions(partition)[0], model, arguments)


def test_without_a_compiler_calls_run_one_by_one_which_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("no C++ compiler\nat all")

    one_by_one(monkeypatch, lambda _: fails)
    monkeypatch.setattr(compiled, "_said", [])
    partition, model, arguments = divided(gpt(), TENSOR_PARALLEL)
    with caplog.at_level(logging.WARNING, "dlcp_client"):
        assert_equal(in_functions(partition)[0], model, arguments)
    said = [one.message for one in caplog.records if one.name == "dlcp_client"]
    assert said == ["spmd: inductor cannot compile, so ATen calls run one by one: no C++ compiler"]


def test_an_error_of_the_calls_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one(monkeypatch, lambda calls: calls.forward)
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(torch.ops.aten.mm.default, (x, x)),))
    with pytest.raises(RuntimeError, match="must be a matrix"):
        CompiledCalls(fx.GraphModule({}, graph), {})(torch.ones(3))


@pytest.mark.processes  # a compiler
def test_inductor_compiles_the_same_numbers(caplog: pytest.LogCaptureFixture) -> None:
    partition, model, arguments = divided(perceptron(), {"up.weight": ("model", None)})
    assert_equal(in_functions(partition)[0], model, arguments)
    assert not [one for one in caplog.records if one.name == "dlcp_client"]
