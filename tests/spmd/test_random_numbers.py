"""Random numbers do not depend on the mesh, and have the distribution that torch says."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dlcp_client.spmd.capture import Kind
from dlcp_client.spmd.costs import Costs
from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.planning import plan
from dlcp_client.spmd.random_numbers import LARGEST, Draws
from dlcpd.contract.errors import BadConfig
from tests.spmd.one_device import run

MESHES = [Mesh({"a": 1}), Mesh({"a": 3}), Mesh({"a": 2, "b": 2})]
SHAPE = (41, 50)
SLOW = Costs(work_per_s=1e3)  # work is dear: what can be divided is


class Of(nn.Module):
    """A function of an argument that a weight has scaled."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(SHAPE[1]))
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x * self.weight)


def drawn(function: Callable[[Tensor], Tensor], mesh: Mesh) -> Tensor:
    """The result on ranks, of ones."""
    model, x = Of(function), torch.ones(SHAPE)
    dims = ("a", "b" if "b" in mesh.sizes else None)
    return run(plan(model, mesh, example=(x,), inputs=[dims], costs=SLOW), model, (x,))[
        Kind.RESULT, "0"
    ]


# The mean, and the mean of squares.
DISTRIBUTIONS: dict[str, tuple[Callable[[Tensor], Any], float, float]] = {
    "rand": (lambda x: torch.rand(SHAPE) * x, 1 / 2, 1 / 3),
    "rand_like": (lambda x: torch.rand_like(x) * x, 1 / 2, 1 / 3),
    "randn": (lambda x: torch.randn(SHAPE) * x, 0, 1),
    "randn_like": (lambda x: torch.randn_like(x) * x, 0, 1),
    "double": (lambda x: torch.randn_like(x, dtype=torch.double), 0, 1),
    "bfloat16": (lambda x: torch.randn_like(x.bfloat16()).float(), 0, 1),
    "randint": (lambda x: torch.randint(2, 8, SHAPE) * x, 4.5, 23 + 1 / 6),
    "randint_like": (lambda x: torch.randint_like(x, 0, 4) * x, 1.5, 3.5),
    "bernoulli": (lambda x: torch.bernoulli(x / 4), 1 / 4, 1 / 4),
    "bernoulli_": (lambda x: x.new_empty(SHAPE).bernoulli_(0.7) * x, 0.7, 0.7),
    "bernoulli of a tensor": (lambda x: x.clone().bernoulli_(x / 2), 1 / 2, 1 / 2),
    "uniform_": (lambda x: torch.empty_like(x).uniform_(-1, 1), 0, 1 / 3),
    "normal_": (lambda x: torch.empty_like(x).normal_(1, 2) * x, 1, 5),
    "normal of means": (lambda x: torch.normal(x, 2.0), 1, 5),
    "normal of deviations": (lambda x: torch.normal(0.0, x), 0, 1),
    "normal of both": (lambda x: torch.normal(x, x), 1, 2),
    "normal of a size": (lambda x: torch.normal(1.0, 2.0, SHAPE) * x, 1, 5),
    "exponential_": (lambda x: torch.empty_like(x).exponential_(2), 1 / 2, 1 / 2),
    "dropout": (lambda x: F.dropout(x, 0.2), 1, 1.25),
    "dropout2d": (lambda x: F.dropout2d(x[..., None, None], 0.2), 1, 1.25),
    "rrelu": (lambda x: F.rrelu(-x, 0.2, 0.4, training=True), -0.3, 0.09 + 0.04 / 12),
    "gumbel": (lambda x: F.gumbel_softmax(x, hard=True), 1 / 50, 1 / 50),
    "multinomial": (lambda x: torch.multinomial(x, 40, replacement=True) * 1.0, 24.5, 808.5),
    "a permutation": (lambda x: torch.randperm(50) * x, 24.5, 808.5),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_numbers_have_their_distribution_and_do_not_depend_on_the_mesh(name: str) -> None:
    function, mean, square = DISTRIBUTIONS[name]
    found = [drawn(function, mesh) for mesh in MESHES]
    for one in found[1:]:
        torch.testing.assert_close(one, found[0])
    numbers = found[0].double()
    spread = max(square - mean**2, 1e-9) ** 0.5
    assert abs(numbers.mean() - mean) < 5 * spread / numbers.numel() ** 0.5
    assert abs(numbers.square().mean() - square) < 0.15 * square
    again = drawn(lambda x: torch.stack([function(x), function(x)]), MESHES[0])
    assert (again[0] != again[1]).any(), "each call has numbers of its own"


def test_draws_without_replacement_follow_the_weights() -> None:
    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([0.0, 1.0, 2.0, 5.0]))

        def forward(self, x: Tensor) -> Tensor:
            return torch.multinomial(x * self.weight.detach(), 3) + self.weight.sum() * 0

    x, model = torch.ones(1000, 4), Weighted()
    made = plan(model, MESHES[1], example=(x,), inputs=[("a", None)])
    numbers = run(made, model, (x,))[Kind.RESULT, "0"].long()
    assert (numbers.sort(1).values == torch.tensor([1, 2, 3])).all()
    first = numbers[:, 0].bincount(minlength=4) / 1000
    torch.testing.assert_close(first, torch.tensor([0, 1 / 8, 2 / 8, 5 / 8]), rtol=0, atol=0.06)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bits", [0, LARGEST - 1])
def test_the_outermost_bits_give_finite_noise(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, bits: int
) -> None:
    """One float32 in 2^25 is rounded up to 1."""
    monkeypatch.setattr(Draws, "_bits", lambda _self, shape: torch.full(list(shape), bits))
    drawn = Draws().exponential(torch.empty(3, dtype=dtype))
    assert (drawn > 0).all() and drawn.log().isfinite().all()


@pytest.mark.parametrize("train", [False, True])
def test_rrelu_has_the_gradients_of_its_factors(*, train: bool) -> None:
    model, x = Of(lambda x: F.rrelu(x, 0.2, 0.4, training=train)), torch.randn(SHAPE)
    made = plan(model, MESHES[1], example=(x,), inputs=[("a", None)])
    values = run(made, model, (x,))
    # The function is linear in the weight, which is one; `run` has gradients of ones.
    sums = values[Kind.RESULT, "0"].sum(0)
    torch.testing.assert_close(values[Kind.GRADIENT, "weight"], sums)


def test_gradients_pass_through_the_numbers_of_the_forward_pass() -> None:
    model, x = Of(lambda x: x * torch.randn_like(x)), torch.ones(SHAPE)
    found = []
    for mesh in MESHES[:2]:
        made = plan(model, mesh, example=(x,), inputs=[("a", None)])
        values = run(made, model, (x,))
        sums = values[Kind.RESULT, "0"].sum(0)
        found.append(values[Kind.GRADIENT, "weight"])
        assert found[-1].shape == sums.shape
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize(
    "function",
    [
        lambda x, g: x * torch.rand(SHAPE, generator=g),
        lambda x, g: torch.bernoulli(x / 2, generator=g),
        lambda x, g: torch.empty_like(x).normal_(generator=g),
    ],
)
def test_a_generator_is_refused_with_the_line(function: Any) -> None:
    generator = torch.Generator()
    with pytest.raises(BadConfig, match=r"test_random_numbers\.py:\d+"):
        drawn(lambda x: function(x, generator), MESHES[1])
