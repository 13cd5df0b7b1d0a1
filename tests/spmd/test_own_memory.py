"""No gradient shares memory with another one, or with a tensor of the forward pass."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dlcp_client.spmd.capture import Kind
from dlcp_client.spmd.collectives import Position
from dlcp_client.spmd.halves import halves_of
from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.planning import plan
from tests.spmd.trainings import CASES, case

ALONE = Mesh({"a": 1})


def _check(model: nn.Module, arguments: tuple[Tensor, ...], mesh: Mesh = ALONE) -> None:
    """On one rank, where no collective makes new tensors."""
    made = plan(model, mesh, example=arguments)
    halves, captured = halves_of(made.graph, made.plan.captured), made.plan.captured
    stored = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers())
    primals = [
        arguments[int(name)] if kind is Kind.ARGUMENT else stored[name].detach()
        for kind, name, _ in captured.inputs
        if kind is not Kind.TANGENT
    ]
    ranks = Position(mesh, 0)
    outputs = halves.forward(ranks, *primals)
    saved = outputs[halves.results + halves.updates :]
    tangents = [
        torch.ones(value.shape, dtype=value.tensor.dtype)
        for kind, _, value in captured.inputs
        if kind is Kind.TANGENT and value is not None
    ]
    gradients = halves.backward(ranks, *saved, *tangents)
    held = [one for one in gradients if one is not None]
    assert held
    others = {_memory(one) for one in (*primals, *saved, *tangents)}
    assert not others & {_memory(one) for one in held}
    assert len({_memory(one) for one in held}) == len(held)


def _memory(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


@pytest.mark.parametrize("name", sorted(CASES.keys() - {"gpt"}))  # which has two ranks or more
def test_gradients_of_models(name: str) -> None:
    one = case(name, 1)
    _check(one.model, one.arguments, one.mesh)


class Weights(nn.Module):
    """Two parameters of equal shape, a matrix and a number."""

    def __init__(self, function: Callable[["Weights", Tensor], Tensor]) -> None:
        super().__init__()
        self.a, self.b = (nn.Parameter(torch.randn(4).double()) for _ in range(2))
        self.matrix, self.number = (
            nn.Parameter(torch.randn(shape).double()) for shape in ((4, 4), ())
        )
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


@pytest.mark.parametrize(
    "function",
    [
        lambda m, x: x + m.a + m.b,  # one sum
        lambda m, x: (x + m.a + m.b).sum(0) + m.a,
        lambda m, x: m.a + m.b,  # the tangent itself
        lambda m, x: x.sum() + m.number,
        lambda m, x: F.linear(x, m.matrix, m.a) + F.linear(x * 2, m.matrix, m.b),
        lambda m, x: torch.cat([m.a, m.b]),  # parts of one tensor
        lambda m, x: m.matrix.view(16) + m.matrix.t().reshape(16),
        lambda m, x: torch.stack([m.a, m.b]).unbind()[0] * m.number,
        lambda m, x: m.matrix.chunk(2)[1] * m.a + m.b.unsqueeze(0),
    ],
)  # fmt: skip
def test_gradients_that_are_views(function: Callable[[Weights, Tensor], Tensor]) -> None:
    _check(Weights(function), (torch.randn(3, 4).double(),))
