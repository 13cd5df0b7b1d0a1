"""What one rank does in a test of the guard: in a process of its own; plain values come back."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dlcp_client import Guard, bounded, cross_step, ddp
from tests.client.ddp_ranks import group, model, step, weights
from tests.client.real import TIMEOUT

BOUND = 0.2
WARMUP = 2
STEPS = 6


def config(folder: Path, rank: int, loss: float) -> Path:
    """The file of a rank's daemon; its ledger is in `folder`/rankN."""
    file = folder / f"guard{rank}.toml"
    file.write_text(
        '[daemon]\ncontrol_address = "127.0.0.1"\n'
        '[network]\npaths = [{ address = "127.0.0.1" }]\npeer_timeout = 10.0\n'
        f"[inject]\nloss = {loss}\nseed = {rank}\n"
        f'[ledger]\ndirectory = "{folder}/rank{rank}"\ninputs = true\n'
    )
    return file


def watched(
    rank: int, store: str, loss: float, guard: dict[str, Any] | None, how: str = "ddp"
) -> dict[str, Any]:
    """A bounded training with a guard, or without: weights, and a report after each step."""
    options: dict[str, Any] = {
        "warmup_steps": WARMUP,
        "config": config(Path(store).parent, rank, loss),
        "timeout": TIMEOUT,
        "guard": None if guard is None else Guard(**guard),
    }
    reports, raised = [], ""
    with group(rank, store), ExitStack() as undo:
        net = model()
        if how == "ddp":
            handle: Any = ddp.register(net, bounded(BOUND), **options)
        else:
            optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
            handle = cross_step.register(net, optimizer, bounded(BOUND), **options)
        undo.callback(handle.close)
        for number in range(STEPS):
            try:
                step(net, rank, number) if how == "ddp" else deferred(net, optimizer, rank, number)
            except Exception as exc:
                raised = f"{number} {type(exc).__name__}: {exc}"
                break
            reports.append(handle.guard.report() if handle.guard else {})
        if how != "ddp":
            handle.synchronize()
        dist.barrier()  # who leaves earlier ends the session of the other
        return {
            "weights": weights(net).numpy(),
            "reports": reports,
            "raised": raised,
            "operations": handle.ledger.operations,
        }


def deferred(net: nn.Module, optimizer: Any, rank: int, number: int) -> None:
    torch.manual_seed(100 * number + rank)
    words, targets = torch.randint(0, 32, (16, 4)), torch.randn(16, 4, 4)
    optimizer.zero_grad()
    (net(words) - targets).square().mean().backward()
    optimizer.step()
