"""cross_step with compiled models: whoever compiles what, and when, the weights are the same."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

from dlcp_client import cross_step
from tests.client.stand_in import StandIn

WIDTH = 16
STEPS = 5
Call = Callable[[torch.Tensor], torch.Tensor]

pytestmark = [
    pytest.mark.usefixtures("group_of_one"),
    pytest.mark.filterwarnings("ignore:Using `torch.compile.module.` when there are global hooks"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    pytest.mark.filterwarnings("ignore::UserWarning:torch.*"),
]


def as_a_whole(model: DistributedDataParallel) -> Call:
    return torch.compile(model, backend="aot_eager")


def in_place(model: DistributedDataParallel) -> Call:
    model.compile(backend="aot_eager")
    return model


def a_block(model: DistributedDataParallel) -> Call:
    model.module[2] = torch.compile(model.module[2], backend="aot_eager")
    return model


def a_block_in_place(model: DistributedDataParallel) -> Call:
    model.module[2].compile(backend="aot_eager")
    return model


def a_function(model: DistributedDataParallel) -> Call:
    return torch.compile(lambda batch: model(batch) * 2, backend="aot_eager")


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    yield
    torch.compiler.reset()


def model() -> DistributedDataParallel:
    torch.manual_seed(0)
    block = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU())
    layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), block, nn.Linear(WIDTH, WIDTH))
    return DistributedDataParallel(layers)


def trained(compiled: Any, at: int, far: StandIn | None) -> torch.Tensor:
    """Weights after a training whose model is compiled before step `at`; -1: before register."""
    net = model()
    call: Call = compiled(net) if at < 0 else net
    optimizer = SGD(net.parameters(), lr=0.1)
    handle = cross_step.register(net, optimizer, session=far.sessions[0]) if far else None
    for step in range(STEPS):
        if step == at:
            call = compiled(net)
        torch.manual_seed(step)
        optimizer.zero_grad()
        loss: Any = call(torch.randn(3, WIDTH)).square().mean()
        loss.backward()
        optimizer.step()
    if handle:
        handle.close()
    return torch.cat([p.detach().flatten() for p in net.parameters()])


@pytest.mark.parametrize("at", [-1, 0, 2])
@pytest.mark.parametrize("how", [as_a_whole, in_place, a_block, a_block_in_place, a_function])
def test_a_compiled_model_trains_to_the_same_weights(how: Any, at: int) -> None:
    far = StandIn(world=1)
    try:
        ours = trained(how, at, far)
    finally:
        far.close()
    assert torch.equal(ours, trained(how, at, None))
