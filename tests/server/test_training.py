"""register(): synchronous training is that of averaged gradients, with every optimizer."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from dlcp_client import ps
from dlcp_client.ps.host_daemon import HostDaemon
from dlcp_client.ps.layout import ShardLayout, ShardTensor
from dlcp_client.server.optimizers import Optimizer
from tests.server.kit import each, served

WORKERS, STEPS = 2, 10
_seeding = threading.Lock()
Make = Callable[[Any], torch.optim.Optimizer]
MAKERS: dict[str, Make] = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, weight_decay=0.01),
    "momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, 0.01),
    "adamw": lambda p: torch.optim.AdamW(p, 0.01),
}


def model_of(seed: int) -> nn.Module:
    with _seeding:  # of the process, and workers are threads of it
        torch.manual_seed(seed)
        return _made()


def _made() -> nn.Module:
    return nn.Sequential(nn.Linear(20, 30), nn.LayerNorm(30), nn.ReLU(), nn.Linear(30, 5))


def loss_of(model: nn.Module, step: int, rank: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    batch = torch.randn((16, 20), generator=generator)
    target = torch.randint(0, 5, (16,), generator=generator)
    return nn.functional.cross_entropy(model(batch), target)


def state(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def averaged(make: Make) -> torch.Tensor:
    """As DDP does: the mean of the ranks' gradients, and one optimizer."""
    model = model_of(0)
    optimizer = make(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in range(WORKERS):
            (loss_of(model, step, rank) / WORKERS).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return state(model)


def worker(rank: int, make: Make, found: dict[str, Any]) -> torch.Tensor:
    model = model_of(rank)  # those of worker 0 become those of all
    optimizer = make(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)
    handle = ps.register(model, optimizer, rank=rank, world_size=WORKERS, **found)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, step, rank).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    assert handle.version == handle.steps == STEPS and not handle.skipped
    told = handle.metrics()
    assert told["steps"] == STEPS and told["bytes"]
    assert told["exposed_s"] > 0 and told["step_s"] > 0  # of all steps; after the first
    handle.close()
    return state(model)


@pytest.mark.parametrize("name", MAKERS)
def test_synchronous_is_as_averaged_gradients(
    tmp_path: Path, host_daemon: HostDaemon, name: str
) -> None:
    with served(tmp_path, host_daemon, shards=2) as found:
        states = each(WORKERS, lambda rank: worker(rank, MAKERS[name], found))
    assert all(torch.equal(one, states[0]) for one in states)
    assert (states[0] - averaged(MAKERS[name])).abs().max() <= 1e-6


def lamb_of_averaged() -> torch.Tensor:
    model, spec = model_of(0), ps.lamb(0.02)
    sizes = [p.numel() for p in model.parameters()]
    optimizer = Optimizer("lamb", ShardLayout(tuple(ShardTensor(size, 0) for size in sizes)))
    for step in range(STEPS):
        model.zero_grad()
        for rank in range(WORKERS):
            (loss_of(model, step, rank) / WORKERS).backward()  # type: ignore[no-untyped-call]
        w = state(model).numpy().copy()
        gradient = np.concatenate([p.grad.numpy().ravel() for p in model.parameters()])  # type: ignore[union-attr]
        optimizer.step(w, gradient, spec.groups)
        parts = torch.split(torch.from_numpy(w), sizes)
        with torch.no_grad():
            for p, part in zip(model.parameters(), parts, strict=True):
                p.copy_(part.view(p.shape))
    return state(model)


def test_lamb_of_the_servers_by_step_of_the_handle(tmp_path: Path, host_daemon: HostDaemon) -> None:
    def work(rank: int) -> torch.Tensor:
        model = model_of(rank)
        handle = ps.register(model, ps.lamb(0.02), rank=rank, world_size=WORKERS, **found)
        for step in range(STEPS):
            model.zero_grad()
            loss_of(model, step, rank).backward()  # type: ignore[no-untyped-call]
            assert handle.step()
        handle.close()
        return state(model)

    with served(tmp_path, host_daemon, shards=2) as found:
        states = each(WORKERS, work)
    assert (states[0] - lamb_of_averaged()).abs().max() <= 1e-6


def test_half_precision_has_its_parameters_in_float32_on_the_server(
    tmp_path: Path, host_daemon: HostDaemon
) -> None:
    with served(tmp_path, host_daemon) as found:
        model = nn.Linear(3, 2, bias=False).to(torch.bfloat16)
        nn.init.ones_(model.weight)
        optimizer = torch.optim.SGD(model.parameters(), 2**-10)
        handle = ps.register(model, optimizer, rank=0, world_size=1, **found)
        for _ in range(4):  # each smaller than bfloat16 can take from 1
            model.weight.grad = torch.ones_like(model.weight)
            optimizer.step()
        assert (model.weight == 1 - 2**-8).all()
        handle.close()


def test_a_closed_registration_gives_the_optimizer_its_step_back(
    tmp_path: Path, host_daemon: HostDaemon
) -> None:
    with served(tmp_path, host_daemon) as found:
        model = nn.Linear(1, 1, bias=False)
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        handle = ps.register(model, optimizer, rank=0, world_size=1, **found)
        before = model.weight.item()
        model.weight.grad = torch.ones_like(model.weight)
        assert optimizer.step(lambda: 7.0) == 7.0
        assert model.weight.item() == pytest.approx(before - 0.5)
        handle.close()
        handle.close()
        optimizer.step()
        assert model.weight.item() == pytest.approx(before - 1.0) and handle.steps == 1
