"""Changes of an optimizer or its parameters while `fused` trains them, and parameters without or
with one element: one rank, on a standing host."""

import copy
import math
import pickle
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
import torch
from torch import nn
from torch._C._distributed_c10d import HashStore
from torch.optim import SGD, Adam, Optimizer

from dlcp_client import Session, connect, fused
from dlcpd.contract.errors import BadConfig
from tests.client.fused_ranks import same, weights
from tests.client.real import TIMEOUT
from tests.standing import STANDING

pytestmark = pytest.mark.processes
Change = Callable[[nn.Module, Optimizer], Any]


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    torch.set_num_threads(1)  # small tensors: threads would wait for each other
    [socket] = STANDING.sockets(1)
    options: dict[str, Any] = {"socket": socket, "timeout": TIMEOUT, "arena_bytes": 16 << 20}
    with connect(HashStore(), 0, 1, **options) as made:
        yield made


class Scaled(nn.Module):
    """With a parameter of no dimension, and one of no element between the others."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.frozen = nn.Linear(9, 4).requires_grad_(False)
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.empty = nn.Parameter(torch.empty(0, 3))
        self.linear = nn.Linear(9, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.linear(x) + self.frozen(x)
        return out * self.scale + self.empty.sum()


def step(net: nn.Module, optimizer: Optimizer, number: int) -> None:
    torch.manual_seed(number)
    optimizer.zero_grad()
    net(torch.randn(5, 9)).square().sum().backward()
    optimizer.step()


def setting(**options: Any) -> Change:
    return lambda _, optimizer: [group.update(options) for group in optimizer.param_groups]


def nothing(*_: Any) -> None:
    """No change."""


@pytest.mark.parametrize(
    ("kind", "options", "change"),
    [
        (SGD, {"momentum": 0.9}, nothing),
        (Adam, {"amsgrad": True}, setting(betas=(0.5, 0.9), eps=1e-3, maximize=True)),
        (Adam, {"amsgrad": True}, setting(amsgrad=False)),
        (Adam, {"lr": torch.tensor(0.1)}, setting(lr=0.01)),
        (SGD, {}, setting(momentum=0.9)),
        (SGD, {"momentum": 0.9}, setting(momentum=0.0)),
    ],
)
def test_settings_may_change_and_parameters_may_be_empty(
    session: Session, kind: Any, options: dict[str, Any], change: Change
) -> None:
    options = {"lr": 0.1} | options
    trainings = []
    for registers in (True, False):
        net = Scaled()
        optimizer = kind(net.parameters(), fused=True, **options)
        handle = fused.register(net, optimizer, session=session) if registers else None
        for number in range(4):
            if number == 2:
                change(net, optimizer)
            step(net, optimizer, number)
        trainings.append((net, optimizer, optimizer.state_dict()["state"]))
        if handle is not None:
            handle.close()
    (net, optimizer, state), (plain, reference, expected) = trainings
    assert torch.equal(weights(net), weights(plain))
    assert same(state, expected)
    assert same(optimizer.state_dict()["state"], reference.state_dict()["state"])


def test_a_model_may_have_empty_parameters_alone(session: Session) -> None:
    net = nn.ParameterList([torch.empty(0, 3)])
    optimizer = Adam(net.parameters())
    with closing(fused.register(net, optimizer, session=session)):
        net[0].sum().backward()
        optimizer.step()
        assert net[0].shape == (0, 3)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (setting(amsgrad=True), "has no max_exp_avg_sq: give amsgrad=True before the first step"),
        (setting(differentiable=True), "does not support Adam.differentiable=True."),
        (lambda _, its: its.register_step_post_hook(nothing), "has step hooks, which fused does"),
        (lambda net, _: net.requires_grad_(), r"shape \[4, 9\] was frozen at fused.register"),
        (
            lambda _, its: its.param_groups[0]["params"].append(nn.Parameter(torch.ones(3))),
            "has other parameters than at fused.register: close the handle",
        ),
        (lambda _, its: copy.deepcopy(its), r"would have no state.*save its state_dict\(\)"),
        (lambda _, its: pickle.dumps(its), r"would have no state.*save its state_dict\(\)"),
    ],
)
def test_a_change_that_no_update_would_follow_is_refused(
    session: Session, change: Change, text: str
) -> None:
    net = Scaled()
    optimizer = Adam(net.parameters(), lr=0.1)
    with closing(fused.register(net, optimizer, session=session)):
        step(net, optimizer, 0)
        before = weights(net)
        with pytest.raises(BadConfig, match=text):  # noqa: PT012  # some are met by the next step
            change(net, optimizer)
            step(net, optimizer, 1)
        assert torch.equal(weights(net), before)
    assert optimizer.state_dict()["state"]
    assert copy.deepcopy(optimizer).state_dict()["state"], "after close()"


def test_clipping_takes_numbers_as_torch_does(session: Session) -> None:
    net = Scaled()
    optimizer = SGD(net.parameters(), lr=0.1)
    with closing(fused.register(net, optimizer, session=session)) as handle:
        net(torch.ones(9)).sum().backward()
        found = [handle.clip_grad_norm_(most, "inf") for most in (torch.tensor(9.0), 9.0)]  # type: ignore[arg-type]  # torch takes them
        assert found == [handle.clip_grad_norm_(9.0, math.inf)] * 2
        optimizer.step()
