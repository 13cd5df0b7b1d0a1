"""What one rank does in a test of reports: in a process of its own; plain values come back."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dlcp_client import bounded, cross_step, ddp, exact
from dlcp_client.reporting import json_lines
from tests.client.ddp_ranks import group, model, step, weights
from tests.client.guard_ranks import deferred
from tests.client.real import TIMEOUT

BOUND = 0.2
WARMUP = 2
STEPS = 8


class Lines(logging.Handler):
    """What the library's logger said."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@contextmanager
def listening() -> Iterator[list[str]]:
    log, lines = logging.getLogger("dlcp_client"), Lines()
    log.setLevel(logging.INFO)
    log.addHandler(lines)
    try:
        yield lines.said
    finally:
        log.removeHandler(lines)


def registered(net: Any, how: str, **options: Any) -> tuple[Any, Any]:
    """A registration, and the optimizer if it has one."""
    options = {"warmup_steps": WARMUP, "timeout": TIMEOUT} | options
    if how == "ddp":
        return ddp.register(net, bounded(BOUND), **options), None
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    return cross_step.register(net, optimizer, bounded(BOUND), **options), optimizer


def reported(rank: int, store: str, how: str, config: Path) -> dict[str, Any]:
    """A bounded training under loss: its numbers in the middle and at the end, and what it says."""
    with group(rank, store), ExitStack() as undo:
        net = model()
        said = undo.enter_context(listening())
        handle, optimizer = registered(net, how, config=config)
        undo.callback(handle.close)
        middle, told, lines = handle.totals, [], json_lines("unused")
        handle.report_to(lambda scalars, step: told.append((step, scalars)), every=3)
        handle.report_to(lines, every=2 * STEPS)
        for number in range(STEPS):
            if number == STEPS // 2:
                if optimizer:
                    handle.synchronize()
                middle = handle.totals
            if optimizer is None:
                step(net, rank, number)
            else:
                deferred(net, optimizer, rank, number)
        if optimizer:
            handle.synchronize()
        out = {
            "whole": handle.metrics(),
            "later": handle.metrics(since=middle),
            "summary": handle.summary(all_ranks=True),
            "ledger": handle.ledger,
            "labels": list(handle.account.labels.values()),
            "weights": weights(net).numpy(),
            "parameters": [name for name, _ in net.module.named_parameters()],
            "size": sum(p.numel() * p.element_size() for p in net.parameters()),
        }
        dist.barrier()  # who leaves earlier ends the session of the other
        handle.session.close() if how == "ddp" else handle.close()  # the line comes either way
        return out | {"said": said, "told": told, "run": lines.run}


def changing(rank: int, store: str, how: str, policies: list[Any], config: Path) -> dict[str, Any]:
    """A training whose policy is set before each step, where policies[step] has one for this rank:
    what it lost in each step, and what came back."""
    with group(rank, store), ExitStack() as undo:
        net = model()
        handle, optimizer = registered(net, how, config=config)
        undo.callback(handle.close)
        losses, raised = [], ""
        for number, each in enumerate(policies):
            if each[rank] is not None:
                handle.set_policy(each[rank])
            before = handle.totals
            try:
                if optimizer is None:
                    step(net, rank, number)
                else:
                    deferred(net, optimizer, rank, number)
                    handle.synchronize()
            except Exception as exc:
                raised = f"{number} {type(exc).__name__}: {exc}"
                break
            losses.append(handle.totals.since(before).loss)
        out = {
            "losses": losses,
            "raised": raised,
            "weights": weights(net).numpy(),
            "left": handle.ledger.waived - handle.ledger.reapplied,
            "policy": handle.policy,
        }
        if not raised:
            dist.barrier()
        return out


def linear() -> nn.parallel.DistributedDataParallel:
    """Its gradient does not depend on its weights, so the sum over steps says what is missing."""
    torch.manual_seed(1)
    layers = [nn.Linear(600, 500, bias=False), nn.Linear(500, 600, bias=False)]
    return nn.parallel.DistributedDataParallel(Apart(layers), bucket_cap_mb=1)


class Apart(nn.Module):
    """Layers side by side."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, inputs: list[torch.Tensor]) -> torch.Tensor:
        return torch.cat([layer(x) for layer, x in zip(self.layers, inputs, strict=True)], 1)


def resumed(rank: int, store: str, how: str, config: Path, loading: bool) -> dict[str, Any]:
    """A bounded training that makes a checkpoint; one more step, exactly, of itself and of a
    training that begins with the checkpoint; the same steps without any loss."""
    with group(rank, store), ExitStack() as undo:
        net, plain = linear(), linear()
        handle, optimizer = registered(net, how, config=config)
        undo.callback(handle.close)
        for number in range(6):
            _linear_step(plain, None, rank, number)
            _linear_step(net, optimizer, rank, number)
        out: dict[str, Any] = {"state": handle.state_dict(), "left": _left(handle)}
        again = linear()
        again.load_state_dict(net.state_dict())
        later, second = registered(again, how, config=config, warmup_steps=10)
        undo.callback(later.close)
        if loading:
            later.load_state_dict(out["state"])
            out["warmup"] = later.rules.warmup_steps
        handle.set_policy(exact())
        _linear_step(plain, None, rank, 6)
        for one, its in ((net, optimizer), (again, second)):
            _linear_step(one, its, rank, 6)
        for one in (handle, later):
            if how != "ddp":
                one.synchronize()
        scale = float(weights(plain).abs().max())
        out["gone_on"], out["resumed"] = (
            float((weights(one) - weights(plain)).abs().max()) / scale for one in (net, again)
        )
        out["after"] = (later if loading else handle).state_dict()
        dist.barrier()
        return out


def _linear_step(net: nn.Module, optimizer: Any, rank: int, number: int) -> None:
    torch.manual_seed(100 * number + rank)
    inputs = [torch.randn(8, 600), torch.randn(8, 500)]
    optimizer = optimizer or torch.optim.SGD(net.parameters(), lr=0.01)
    net.zero_grad()
    (net(inputs) * torch.randn(8, 1100)).sum().backward()
    optimizer.step()


def _left(handle: Any) -> int:
    return int(handle.ledger.waived - handle.ledger.reapplied)
