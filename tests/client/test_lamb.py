"""LAMB: the formula of its source, whole and in parts."""

import copy
import math
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from dlcp_client import Session
from dlcp_client.fused import LAMB
from dlcp_client.fused.flat_bucket import FlatBucket, Slot
from dlcp_client.fused.lamb import trust
from dlcp_client.fused.shard_update import ShardUpdate
from dlcpd.contract.errors import BadConfig, BadTensor

LR, EPS, DECAY = 0.02, 1e-6, 0.1


def parameter(count: int = 50) -> torch.nn.Parameter:
    torch.manual_seed(count)
    return torch.nn.Parameter(torch.randn(count, dtype=torch.float64))


def stepped(weights: Tensor, gradients: list[Tensor]) -> Tensor:
    """The formula, in a few lines."""
    m, v, w = torch.zeros_like(weights), torch.zeros_like(weights), weights.detach().clone()
    for t, g in enumerate(gradients, 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        u = m / (1 - 0.9**t) / ((v / (1 - 0.999**t)).sqrt() + EPS) + DECAY * w
        w = w - LR * w.norm() / u.norm() * u
    return w


def lamb(parameters: list[torch.nn.Parameter], **settings: Any) -> LAMB:
    return LAMB(parameters, lr=LR, kernel="eager", **settings)


def gradients(count: int = 50) -> list[Tensor]:
    torch.manual_seed(count + 1)
    return [torch.randn(count, dtype=torch.float64) for _ in range(5)]


def test_it_follows_its_formula() -> None:
    one = parameter()
    expected, optimizer = stepped(one, gradients()), lamb([one], weight_decay=DECAY)
    for gradient in gradients():
        one.grad = gradient.clone()
        assert optimizer.step(lambda: 3) == 3
        assert torch.equal(one.grad, gradient), "a step leaves the gradients"
    torch.testing.assert_close(one.detach(), expected)


def test_parts_of_ranks_make_the_step_of_the_whole() -> None:
    """Three parts of two parameters of 50 and 9 elements, whose squares are added up."""
    ones = [parameter(50), parameter(9)]
    expected = [stepped(one, gradients(len(one))) for one in ones]
    slots = (Slot(ones[0], 0, 50), Slot(ones[1], 56, 65))
    weights, averages = torch.zeros(2, 72, dtype=torch.float64)
    session = cast(Session, None)  # a bucket of the CPU copies nothing
    bucket = FlatBucket(session, 0, slots, weights, averages, 2)
    bucket.enter()
    shard = ShardUpdate(bucket, lamb(ones, weight_decay=DECAY))
    parts = [(0, 192), (192, 480), (480, 576)]  # bytes
    for given in zip(gradients(50), gradients(9), strict=True):
        for (_, start, stop), gradient in zip(slots, given, strict=True):
            bucket.gradients[start:stop] = gradient
        squared = torch.zeros(2, 2, dtype=torch.float64)
        for part in parts:
            shard.direct(*part, squared)
        shard.ratios = trust(*squared)
        for part in parts:
            shard.update(*part)
        shard.stepped()
    for one, wanted in zip(ones, expected, strict=True):
        torch.testing.assert_close(one.detach(), wanted)
    state = shard.by_parameter(shard.state())
    assert [float(one["step"]) for one in state] == [5.0, 5.0]
    assert [one["exp_avg_sq"].shape for one in state] == [(50,), (9,)]


@pytest.mark.parametrize("zero", ["weights", "direction"])
def test_without_a_norm_the_step_is_that_of_adam(zero: str) -> None:
    one = parameter()
    if zero == "weights":
        one.data.zero_()
    one.grad = torch.zeros_like(one) if zero == "direction" else torch.ones_like(one)
    before = one.detach().clone()
    lamb([one], weight_decay=0.0).step()
    moved = (before - one.detach()).abs().max().item()
    assert moved == pytest.approx(LR if zero == "weights" else 0.0, rel=1e-5)


NO_NUMBERS: list[Any] = [
    *(-1.0, math.nan, math.inf, 10**400, None, "0.1", True, [], torch.ones(2)),
]
NO_SAVED: list[Any] = [None, 5, {}, {"state": {}}, {"state": [1], "param_groups": []}]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        *(
            ({name: value}, f"{name}=.* is not valid: use a number, 0 or more")
            for name in ("lr", "eps", "weight_decay")
            for value in NO_NUMBERS
        ),
        *(
            ({"betas": (0.9, one)}, "betas=.*0 or more and below 1")
            for one in (1.0, -0.1, "a", None)
        ),
        *(
            ({"betas": given}, "betas=.* is not valid: give two numbers")
            for given in (0.9, None, (0.9,), (0.9, 0.99, 0.9))
        ),
        ({"kernel": "fast"}, "kernel 'fast' is not known"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(BadConfig, match=said):
        LAMB([parameter()], **wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"exp_avg": torch.ones(3)},
        {"exp_avg_sq": None},
        {"exp_avg": torch.ones(50, device="meta")},
        {"step": "a"},
        {"step": torch.ones(3)},
    ],
)
def test_the_state_of_another_model_is_refused(wrong: dict[str, Any]) -> None:
    one = parameter()
    optimizer = lamb([one])
    one.grad = torch.ones_like(one)
    optimizer.step()
    saved = copy.deepcopy(optimizer.state_dict())
    saved["state"][0] |= wrong
    with pytest.raises(
        BadConfig, match=r"shape \(50,\) needs exp_avg, exp_avg_sq .* number `step`"
    ):
        lamb([parameter()]).load_state_dict(saved)
    for given in NO_SAVED:
        with pytest.raises(BadConfig, match="not the state_dict of an optimizer"):
            optimizer.load_state_dict(given)


def test_a_sparse_gradient_is_named() -> None:
    one = parameter()
    one.grad = torch.ones_like(one).to_sparse()
    with pytest.raises(BadTensor, match="a gradient is sparse: use sparse=False"):
        lamb([one]).step()
