"""The servers' optimizers beside torch's over 100 steps; LAMB beside its paper, in float64."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from dlcp_client.ps import specs
from dlcp_client.ps.layout import ShardLayout, ShardTensor
from dlcp_client.ps.specs import OptimizerSpec
from dlcp_client.server import optimizers
from dlcp_client.server.optimizers import Optimizer
from dlcpd.contract.errors import BadConfig

SIZES = [(300,), (3, 5), (1,)]
STEPS = 100
MAKERS: list[tuple[OptimizerSpec, Callable[[Any], torch.optim.Optimizer]]] = [
    (specs.sgd(0.1), lambda p: torch.optim.SGD(p, 0.1)),
    (specs.sgd(0.05, weight_decay=0.1), lambda p: torch.optim.SGD(p, 0.05, weight_decay=0.1)),
    (specs.sgd(0.05, 0.9), lambda p: torch.optim.SGD(p, 0.05, momentum=0.9)),
    (
        specs.sgd(0.05, 0.8, 0.3, 0.01),
        lambda p: torch.optim.SGD(p, 0.05, momentum=0.8, dampening=0.3, weight_decay=0.01),
    ),
    (
        specs.sgd(0.05, 0.9, nesterov=True),
        lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True),
    ),
    (specs.adam(1e-2), lambda p: torch.optim.Adam(p, 1e-2)),
    (
        specs.adam(1e-2, (0.8, 0.99), 1e-6, 0.1),
        lambda p: torch.optim.Adam(p, 1e-2, (0.8, 0.99), 1e-6, 0.1),
    ),
    (specs.adamw(1e-2), lambda p: torch.optim.AdamW(p, 1e-2)),
    (
        specs.adamw(1e-2, (0.7, 0.9), 1e-5, 0.2),
        lambda p: torch.optim.AdamW(p, 1e-2, (0.7, 0.9), 1e-5, 0.2),
    ),
]


@pytest.fixture(autouse=True)
def blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several to a tensor."""
    monkeypatch.setattr(optimizers, "BLOCK", 128)


def layout() -> ShardLayout:
    return ShardLayout(tuple(ShardTensor(int(np.prod(shape)), 0) for shape in SIZES))


def gradients(seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in SIZES]


def flat(tensors: list[torch.Tensor]) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.concatenate([t.detach().numpy().ravel() for t in tensors])


@pytest.mark.parametrize(("spec", "make"), MAKERS, ids=[str(spec)[:60] for spec, _ in MAKERS])
def test_a_hundred_steps_are_those_of_torch(
    spec: OptimizerSpec, make: Callable[[Any], Any]
) -> None:
    parameters = [torch.nn.Parameter(t) for t in gradients(1)]
    theirs, ours = make(parameters), Optimizer(spec.kind, layout())
    w = flat([p.data for p in parameters]).copy()
    for step in range(STEPS):
        gradient = gradients(100 + step)
        for parameter, one in zip(parameters, gradient, strict=True):
            parameter.grad = one.clone()
        theirs.step()
        ours.step(w, flat(gradient), spec.groups)
    difference = np.abs(w - flat([p.data for p in parameters]))
    assert difference.max() <= 1e-6 * max(1.0, float(np.abs(w).max()))


def plain_lamb(w: Any, g: Any, m: Any, v: Any, step: int) -> Any:
    """Algorithm 2 in float64, lr 0.01, betas 0.9 and 0.99, eps 1e-6, decay 0.1."""
    m[:] = 0.9 * m + 0.1 * g
    v[:] = 0.99 * v + 0.01 * g * g
    ratio = (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.99**step)) + 1e-6) + 0.1 * w
    return w - 0.01 * np.linalg.norm(w) / np.linalg.norm(ratio) * ratio


def test_lamb_is_that_of_its_paper() -> None:
    spec, ours = specs.lamb(0.01, (0.9, 0.99), 1e-6, 0.1), Optimizer("lamb", layout())
    w = flat(gradients(1)).copy()
    plain = [t.numpy().ravel().astype(np.float64) for t in gradients(1)]
    moments = [(np.zeros_like(t), np.zeros_like(t)) for t in plain]
    for step in range(1, STEPS + 1):
        gradient = gradients(100 + step)
        ours.step(w, flat(gradient), spec.groups)
        plain = [
            plain_lamb(t, g.numpy().ravel().astype(np.float64), *moment, step)
            for t, g, moment in zip(plain, gradient, moments, strict=True)
        ]
    expected = np.concatenate(plain)
    assert np.abs(w - expected).max() <= 1e-6 * np.abs(expected).max()


def test_lamb_moves_a_tensor_of_zeros_by_the_rate_alone() -> None:
    ours, w = Optimizer("lamb", ShardLayout((ShardTensor(2, 0),))), np.zeros(2, np.float32)
    ours.step(w, np.array([1, -1], np.float32), specs.lamb(0.5).groups)
    assert np.allclose(w, [-0.5, 0.5], atol=1e-5)


def test_groups_have_settings_of_their_own() -> None:
    both = ShardLayout((ShardTensor(2, 0), ShardTensor(1, 1), ShardTensor(1, 1)))
    assert both.runs == (((0, 2), 0), ((2, 4), 1))
    groups = (specs.sgd(1.0).groups[0], specs.sgd(0.25).groups[0])
    w = np.zeros(4, np.float32)
    Optimizer("sgd", both).step(w, np.ones(4, np.float32), groups)
    assert w.tolist() == [-1, -1, -0.25, -0.25]


@pytest.mark.parametrize(
    "make",
    [
        lambda: specs.sgd(-1.0),
        lambda: specs.adam(betas=(1.0, 0.9)),
        lambda: specs.sgd(0.1, nesterov=True),
        lambda: specs.sgd(float("nan")),
        lambda: specs.lamb("fast"),  # type: ignore[arg-type]
        lambda: OptimizerSpec("adagrad", ()),
    ],
)
def test_settings_out_of_range_are_refused(make: Callable[[], OptimizerSpec]) -> None:
    with pytest.raises(BadConfig):
        make()
