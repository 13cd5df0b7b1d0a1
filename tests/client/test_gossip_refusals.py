"""What gossip.register refuses, each by name, before or after ranks have met."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dlcp_client import Session, bounded, connect, exact, gossip
from dlcp_client.gossip.codecs import BF16, TopK
from dlcpd.contract.errors import (
    BadConfig,
    BadMessage,
    BadPolicy,
    BadTensor,
    DeadlineExceeded,
    RanksDisagree,
    SessionClosed,
)
from tests.client.real import TIMEOUT, connected, each_rank

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def sessions() -> Iterator[list[Session]]:
    made = connected()
    yield made
    each_rank(lambda rank: made[rank].close())


def sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def with_parameter(tensor: torch.Tensor) -> nn.Module:
    model = nn.Linear(2, 2)
    model.extra = nn.Parameter(tensor)
    return model


def refused(kind: type[Exception], text: str, model: Any = None, **options: Any) -> None:
    """It is refused without a session: nobody else need be there."""
    model = model or nn.Linear(2, 2)
    optimizer = options.pop("optimizer", None) or sgd(model)
    with pytest.raises(kind, match=text):
        gossip.register(model, optimizer, **options)


def test_arguments_that_cannot_be() -> None:
    refused(BadPolicy, "use exact", policy=bounded(0.01))
    refused(BadPolicy, "write exact", policy="exact")
    refused(BadConfig, "graph \"star\"|graph 'star'", graph="star")
    refused(BadConfig, r"use BF16\(\) or TopK", codec="bf16")
    refused(BadConfig, 'use graph="ring"', codec=BF16(), graph="exponential")
    refused(BadConfig, "timeout", timeout=0)
    refused(BadConfig, "torch.optim.Optimizer", optimizer="sgd")
    refused(BadConfig, "no parameter of this model", optimizer=sgd(nn.Linear(2, 2)))


@pytest.mark.parametrize("make", [TopK, BF16, partial(TopK, 0.1)])
@pytest.mark.parametrize("value", [-0.1, 1.5, "a tenth", float("nan")])
def test_codecs_out_of_range(make: Callable[[Any], Any], value: Any) -> None:
    with pytest.raises(BadConfig, match="fraction above 0"):
        make(value)


def test_models_that_cannot_be_averaged(group_of_one: None) -> None:
    refused(BadTensor, "'extra' is torch.complex64", with_parameter(torch.zeros(2) + 0j))
    refused(BadTensor, "'extra' is sparse", with_parameter(torch.eye(2).to_sparse()))
    refused(BadTensor, "'extra' is on meta", with_parameter(torch.empty(2, device="meta")))
    refused(BadTensor, "UninitializedParameter", nn.Sequential(nn.LazyLinear(2)))
    refused(BadConfig, "plain module", DistributedDataParallel(nn.Linear(2, 2)))
    refused(BadConfig, "no trainable parameter", nn.Linear(2, 2).requires_grad_(False))
    with pytest.raises(BadConfig, match=r"torch\.nn\.Module"):
        gossip.register([nn.Linear(2, 2)], sgd(nn.Linear(2, 2)))  # type: ignore[arg-type]


def test_a_world_of_one(group_of_one: None) -> None:
    refused(BadConfig, "world of one rank", timeout=TIMEOUT)


@pytest.mark.parametrize(
    ("models", "graphs", "text"),
    [
        ((nn.Linear(2, 2), nn.Linear(2, 3)), ("ring", "ring"), "number of their elements is"),
        ((nn.Linear(2, 2), nn.Linear(2, 2, bias=False)), ("ring", "ring"), "trainable parameters"),
        ((nn.Linear(6, 2), nn.Linear(2, 4, bias=True)), ("ring", "ring"), "number of their elem"),
        ((nn.Linear(3, 3), nn.Bilinear(1, 3, 3)), ("ring", "ring"), "names, shapes"),
        ((nn.Linear(2, 2), nn.Linear(2, 2)), ("ring", "exponential"), "graph, codec"),
    ],
)
def test_ranks_that_differ(
    sessions: list[Session], models: tuple[nn.Module, ...], graphs: tuple[str, ...], text: str
) -> None:
    errors = each_rank(
        lambda rank: gossip.register(
            models[rank], sgd(models[rank]), graph=graphs[rank], session=sessions[rank]
        )
    )
    for error in errors:
        assert isinstance(error, RanksDisagree)
        assert text in str(error) and "on rank 1" in str(error)


def replaced(model: Any) -> None:
    model.weight = nn.Parameter(torch.zeros(2, 2))


def added(model: Any) -> None:
    model.extra = nn.Parameter(torch.zeros(2))


def frozen(model: Any) -> None:
    model.bias.requires_grad_(False)


def converted(model: Any) -> None:
    model.double()


@pytest.mark.parametrize("change", [replaced, added, frozen, converted])
def test_parameters_that_change_after_registration(
    sessions: list[Session], change: Callable[[Any], None]
) -> None:
    def run(rank: int) -> None:
        model = nn.Linear(2, 2)
        optimizer = sgd(model)
        handle = gossip.register(model, optimizer, session=sessions[rank])
        optimizer.step()
        change(model)
        for call in (optimizer.step, handle.consensus_distance, handle.average):
            with pytest.raises(BadConfig, match="have changed since register"):
                call()
        assert handle.step == 1
        handle.close()
        with pytest.raises(SessionClosed, match="closed"):
            handle.exchange()
        optimizer.zero_grad()
        gossip.register(model, sgd(model), session=sessions[rank]).close()  # as the text says

    assert each_rank(run) == [None, None]


def test_a_neighbour_that_makes_no_step(sessions: list[Session]) -> None:
    def run(rank: int) -> None:
        model = nn.Linear(2, 2)
        optimizer = sgd(model)
        handle = gossip.register(model, optimizer, exact(deadline=1.0), session=sessions[rank])
        before = model.weight.detach().clone()
        if rank == 0:
            with pytest.raises(DeadlineExceeded):
                optimizer.step()
            with pytest.raises(SessionClosed, match="exchange 1 failed"):
                optimizer.step()
        assert torch.equal(model.weight, before)
        handle.close()

    assert each_rank(run) == [None, None]


@pytest.mark.parametrize("place", [-1, 10])
def test_a_message_with_places_outside_the_bucket(place: int) -> None:
    codec = TopK(0.2)
    message = codec.encode(torch.arange(10.0))
    codec.check(message, 10)
    message[0] = place
    with pytest.raises(BadMessage, match="in a bucket of 10"):
        codec.check(message, 10)


def test_nothing_is_left_open_when_it_is_refused(group_of_one: None) -> None:
    refused(BadConfig, "world of one rank", timeout=TIMEOUT)
    with connect(timeout=TIMEOUT) as session:
        refused(BadConfig, "world of one rank", session=session)
        assert session.all_reduce(torch.ones(2)).wait()  # it is the caller's, and still open
