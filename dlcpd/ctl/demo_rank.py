"""One rank of `dlcpctl demo`: a training script as torchrun would start it."""

import time
from hashlib import blake2b
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import dlcp_client
from dlcp_client import ddp
from dlcpd.ctl.ranks import Conductor
from dlcpd.ctl.status import query
from dlcpd.ctl.tasks import TASKS, Task

BUCKET_MB: Final = 1  # several buckets per model, and most of them above one chunk
TOLD_EVERY: Final = 20  # steps per line of progress
TRANSPORTS: Final = ("gloo", "exact", "bounded")


def run(conductor: Conductor, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """Every task over every transport."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")  # RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say the rest
    try:
        return [
            _train(conductor, kind(), transport, arguments["share"])
            for kind in TASKS
            for transport in TRANSPORTS
        ]
    finally:
        dist.destroy_process_group()


def _register(model: DistributedDataParallel, transport: str) -> ddp.Registration | None:
    """The line that a user adds: gradients go through dlcpd from here on."""
    if transport == "gloo":
        return None
    return ddp.register(model, dlcp_client.exact()) if transport == "exact" else ddp.register(model)


def _train(conductor: Conductor, task: Task, transport: str, share: float) -> dict[str, Any]:
    torch.manual_seed(0)
    plain = task.model()
    model = DistributedDataParallel(plain, bucket_cap_mb=BUCKET_MB)
    registration = _register(model, transport)
    optimizer = task.optimizer(plain)
    losses, times = [], []
    for step in range(round(share * task.steps)):
        begin = time.perf_counter()
        loss = task.loss(model, step, conductor.rank)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own
        optimizer.step()
        times.append(time.perf_counter() - begin)
        losses.append(loss.item())
        if (step + 1) % TOLD_EVERY == 0:
            conductor.progress(
                f"{task.name} over {transport}: step {step + 1}, loss {losses[-1]:.4f}"
            )
    return {
        "task": task.name,
        "transport": transport,
        "score_name": task.score_name,
        "losses": losses,
        "times": times,
        "score": _score(task, plain),
        "digest": parameters_digest(plain),
        "books": _books(conductor, registration),
    }


def _score(task: Task, model: nn.Module) -> float:
    model.eval()
    with torch.no_grad():
        return task.score(model)


def parameters_digest(model: nn.Module) -> str:
    """Of all parameters, bit for bit."""
    digest = blake2b(digest_size=8)
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().data)
    return digest.hexdigest()


def _books(conductor: Conductor, registration: ddp.Registration | None) -> dict[str, int] | None:
    """Totals of the session, which ends here."""
    if registration is None:
        return None
    conductor.barrier()  # nobody leaves while a peer still reads its daemon's books
    report = query(conductor.daemon, 0)["engine"]
    (session,) = report["sessions"].values()
    ledger = registration.ledger
    books = {
        "sent": ledger.sent,
        "repaired": ledger.repaired,
        "lost": ledger.lost,
        "given_up": ledger.given_up,
        "returned": ledger.returned,
        "held_bytes": session["residual_bytes"],
        "injected": report["counters"].get("injected_loss", 0),
    }
    conductor.barrier()
    registration.close()
    return books
