"""step() of `fused` returns before the weights of other ranks are here; using them waits. Two ranks
of one process, over real daemons."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD

from dlcp_client import Session, fused
from dlcp_client.hooks.lazy_parameters import LazyParameter
from dlcpd.contract.errors import BadConfig, DlcpError, OperationAborted
from tests.client.real import TIMEOUT, connected, each_rank

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def sessions() -> Iterator[list[Session]]:
    made = connected()
    yield made
    each_rank(lambda rank: made[rank].close())


def registered(session: Session) -> tuple[nn.Linear, SGD, Any]:
    net = nn.Linear(300, 200)
    nn.init.ones_(net.weight)
    nn.init.zeros_(net.bias)
    optimizer = SGD(net.parameters(), lr=1.0)
    return net, optimizer, fused.register(net, optimizer, session=session)


def waits(net: nn.Module) -> bool:
    return all(type(parameter) is LazyParameter for parameter in net.parameters())


def test_a_step_returns_before_the_weights_of_a_slow_rank(sessions: list[Session]) -> None:
    stepped = threading.Event()

    def rank(number: int) -> Any:
        net, optimizer, handle = registered(sessions[number])
        net(torch.ones(300)).sum().backward()
        if number:
            assert stepped.wait(TIMEOUT), "step() of rank 0 waits for the update of rank 1"
        optimizer.step()
        if not number:
            assert waits(net)
            optimizer.zero_grad()
            assert waits(net), "gradients are not awaited"
            stepped.set()
        out = net(torch.ones(300))
        assert not waits(net)
        handle.close()
        return out.unique().tolist()

    # every gradient is 1: weights are 0 afterwards, and the bias -1
    assert each_rank(rank) == [[-1.0], [-1.0]]


class Interrupted(torch.autograd.Function):
    """The end of a backward pass by an exception of the training."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise MemoryError("of the training")


@pytest.mark.parametrize("begun", [True, False], ids=["in its middle", "before it"])
def test_a_step_that_failed_on_one_rank_is_dropped_by_all(
    sessions: list[Session], begun: bool
) -> None:
    def rank(number: int) -> Any:
        net = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
        for parameter in net.parameters():
            nn.init.ones_(parameter)
        optimizer = SGD(net.parameters(), lr=1.0)
        handle = fused.register(net, optimizer, session=sessions[number])
        inner = net[0](torch.ones(3))
        if not number:
            net[1](inner).backward()
        elif begun:
            with pytest.raises(MemoryError):
                net[1](Interrupted.apply(inner)).backward()  # type: ignore[no-untyped-call]  # torch
        handle.discard()
        optimizer.zero_grad()
        net(torch.ones(3)).backward()
        optimizer.step()
        handle.close()
        with pytest.raises(BadConfig, match="a handle that is closed"):
            handle.discard()
        return [parameter.flatten().tolist() for parameter in net.parameters()]

    # gradients: 1 of all but the last weights, whose inputs are 4
    assert each_rank(rank) == [[[0.0] * 6, [0.0] * 2, [-3.0] * 2, [0.0]]] * 2


def test_an_update_that_raises_on_one_rank_is_raised_by_the_next_use_on_the_other(
    sessions: list[Session],
) -> None:
    def rank(number: int) -> str:
        net, optimizer, handle = registered(sessions[number])
        net(torch.ones(300)).sum().backward()
        if number:
            optimizer.param_groups[0]["lr"] = "fast"
            with pytest.raises(TypeError):
                optimizer.step()
            optimizer.param_groups[0]["lr"] = 1.0
        else:
            with pytest.raises(OperationAborted) as caught:  # noqa: PT012  # either may notice first
                optimizer.step()
                net(torch.ones(300))
            assert "the trainer of rank 1 could not compute" in str(caught.value)
        with suppress(DlcpError):  # close() raises it once more
            handle.close()
        assert not waits(net)
        return type(net.weight).__name__

    assert each_rank(rank) == ["Parameter", "Parameter"]
