"""What one rank does in a test of `register`: in a process of its own; returns plain values."""

import gc
import os
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import psutil
import torch
from torch import nn
from torch._C._distributed_c10d import BuiltinCommHookType
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from dlcp_client import bounded, connect, cross_step, ddp
from dlcpd.contract.errors import DlcpError
from tests.client.ddp_ranks import group, model, step, weights
from tests.client.real import TIMEOUT

PATIENCE: Final = 10.0  # seconds


def children() -> int:
    return len(psutil.Process().children(recursive=True))


def held() -> set[str]:
    """Processes and descriptors of this rank, each with what it refers to."""
    out = {f"process {child.pid}" for child in psutil.Process().children(recursive=True)}
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of listdir itself
            out.add(f"descriptor {number}: {os.readlink(f'/proc/self/fd/{number}')}")
    return out


def left_open(before: set[str]) -> list[str]:
    """What is held and was not held before.

    An arena stays mapped until it is collected, and the framework's threads open and close files
    of their own: only what stays is left open.
    """
    end = time.monotonic() + PATIENCE
    while True:
        gc.collect()
        more = held() - before
        if not more or time.monotonic() > end:
            return sorted(more)
        time.sleep(0.05)


def told(call: Callable[[], Any]) -> str:
    """The error of a call that is to fail."""
    try:
        call()
    except (DlcpError, RuntimeError) as exc:
        return f"{type(exc).__name__}: {exc}"
    return "no error"


def wrong_policies(rank: int, store: str) -> list[tuple[str, list[str]]]:
    """What each wrong policy is told, and what it left open."""
    out = []
    with group(rank, store):
        net = model()
        sgd = torch.optim.SGD(net.parameters(), lr=0.1)
        before = held()
        for policy in ("bounded", 0.01, bounded, None):
            wrong: Any = policy
            for register in (partial(ddp.register, net), partial(cross_step.register, net, sgd)):
                text = told(partial(register, wrong))
                out.append((text, left_open(before)))
    return out


def with_a_hook(rank: int, store: str, builtin: bool, crossing: bool) -> dict[str, Any]:
    """The model has a hook already. `builtin`: C++ alone knows, and refuses after connecting."""
    with group(rank, store):
        net = model()
        sgd = torch.optim.SGD(net.parameters(), lr=0.1)
        if builtin:
            net._register_builtin_comm_hook(  # type: ignore[no-untyped-call]  # noqa: SLF001
                BuiltinCommHookType.ALLREDUCE
            )
        else:
            net.register_comm_hook(None, allreduce_hook)
        before = held()
        if crossing:
            error = told(partial(cross_step.register, net, sgd, timeout=TIMEOUT))
        else:
            error = told(partial(ddp.register, net, timeout=TIMEOUT))
        left = left_open(before)
        step(net, rank, 0)
        patched = "step" in vars(sgd) and "_note" in repr(vars(sgd)["step"].__func__.__closure__)
        return {"error": error, "left": left, "patched": patched}


def behind_a_firewall(rank: int, store: str, config: str, fallback: bool) -> dict[str, Any]:
    """No datagram reaches rank 1, whose control plane works."""
    options: dict[str, Any] = {"config": config} if rank == 1 else {}
    with group(rank, store), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        net = model()
        try:
            handle = ddp.register(net, fallback=fallback, timeout=TIMEOUT, **options)
        except DlcpError as exc:
            return {"error": f"{type(exc).__name__}: {exc}", "children": children()}
        step(net, rank, 0)
        texts = [str(w.message) for w in caught if w.category is RuntimeWarning]
        return {"warnings": texts, "weights": weights(net).numpy(), "session": handle.session}


def missing_a_rank(rank: int, store: str, timeout: float) -> dict[str, Any]:
    """Rank 1 never registers; rank 0 would fall back."""
    with group(rank, store):
        net = model()
        if rank == 1:
            return {}
        began = time.monotonic()
        error = told(partial(ddp.register, net, fallback=True, timeout=timeout))
        return {"error": error, "took": time.monotonic() - began, "children": children()}


class Experts(nn.Module):
    """Two branches whose order a rank chooses, as where each token goes to another expert."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(64, 64) for _ in range(4)])
        self.turn = 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        order = list(self.experts)[:: self.turn]
        return torch.stack([torch.tanh(one(x)) for one in order]).sum(0)


def in_another_order(rank: int, store: str, crossing: bool) -> dict[str, Any]:
    """Rank 1 calls its experts the other way round: with plain DDP, and through dlcpd."""
    with group(rank, store), connect(timeout=TIMEOUT) as session:
        out = []
        for ours in (False, True):
            torch.manual_seed(1)
            experts = Experts()
            net = DistributedDataParallel(experts)
            sgd = torch.optim.SGD(net.parameters(), lr=0.1)
            experts.turn = -1 if rank else 1
            handle: Any = None
            if ours and crossing:
                handle = cross_step.register(net, sgd, session=session)
            elif ours:
                handle = ddp.register(net, session=session)
            for number in range(4):
                torch.manual_seed(10 * number + rank)
                sgd.zero_grad()
                net(torch.randn(8, 64)).square().mean().backward()
                sgd.step()
            if handle:
                handle.close()
            out.append(weights(net))
        return {"apart": float((out[0] - out[1]).abs().max()), "weights": out[1].numpy()}
