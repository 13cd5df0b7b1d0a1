"""Trains a task on one rank, like a user's script, and returns its measurements."""

import time
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, Protocol

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

import dlcp_client
from dlcp_client import cross_step, ddp
from dlcp_lab.ranks.rank import Conductor
from dlcp_lab.training import rank_order
from dlcp_lab.training.compressed import CODECS, POWER_SGD, POWER_SGD_RANK
from dlcp_lab.training.tasks import Task
from dlcp_lab.training.traffic_seen import seen
from dlcpd.inspection.report import query

BUCKET_MB: Final = 1  # several buckets per model, most of them larger than one chunk
TOLD_EVERY: Final = 20  # steps per line of progress
SEEDS_APART: Final = 100_000  # steps, so that no two seeds have the same batches

Registration = ddp.DDPRegistration | cross_step.CrossStepRegistration | None


class Register(Protocol):
    """Registers a transport with a model, as a user's script does."""

    def __call__(self, model: DistributedDataParallel, optimizer: Optimizer) -> Registration: ...


LOW_RANK: Final = dlcp_client.PowerSGD(POWER_SGD_RANK)


def _with(codec: str) -> Register:
    policy = dlcp_client.bounded(codec=codec)
    return lambda model, optimizer: ddp.register(model, policy)


REGISTER: Final[dict[str, Register]] = {
    "gloo": lambda model, optimizer: None,
    "reference": lambda model, optimizer: rank_order.register(model),
    "exact": lambda model, optimizer: ddp.register(model, dlcp_client.exact()),
    "bounded": lambda model, optimizer: ddp.register(model, dlcp_client.bounded()),
    "bounded, cross-step": lambda model, optimizer: cross_step.register(
        model, optimizer, dlcp_client.bounded()
    ),
    POWER_SGD: lambda model, optimizer: ddp.register(model, low_rank=LOW_RANK),
    **{codec: _with(codec) for codec in CODECS},
}


@dataclass(frozen=True, slots=True)
class Training:
    """One training: task, transport, steps, seed."""

    task: Task
    transport: str  # of REGISTER
    steps: int
    seed: int = 0  # of the weights and the batches


def train(conductor: Conductor, training: Training) -> dict[str, Any]:
    """Train; returns the values that dlcp_lab.training.learning reads."""
    task, first = training.task, training.seed * SEEDS_APART
    torch.manual_seed(training.seed)
    plain = task.model()
    model = DistributedDataParallel(plain, bucket_cap_mb=BUCKET_MB)
    optimizer = task.optimizer(plain)
    registration = REGISTER[training.transport](model, optimizer)
    losses, times, forwards = [], [], []
    for step in range(training.steps):
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = task.loss(model, first + step, conductor.rank)
        forwards.append(time.perf_counter() - begin)
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own
        optimizer.step()
        times.append(time.perf_counter() - begin)
        losses.append(loss.item())
        if (step + 1) % TOLD_EVERY == 0:
            told = f"{task.name} over {training.transport}: step {step + 1}, loss {losses[-1]:.4f}"
            conductor.progress(told)
    times[-1] += _settle(registration)
    return {
        "task": task.name,
        "transport": training.transport,
        "seed": training.seed,
        "score_name": task.score_name,
        "losses": losses,
        "times": times,
        "forwards": forwards,
        "score": score(task, plain),
        "digest": parameters_digest(plain),
        "books": books(conductor, registration),
    }


def _settle(registration: Registration) -> float:
    """Finish the updates that cross-step deferred to the next step; returns the seconds it took."""
    begin = time.perf_counter()
    if isinstance(registration, cross_step.CrossStepRegistration):
        registration.synchronize()
    return time.perf_counter() - begin


def score(task: Task, model: nn.Module) -> float:
    """Score of a model on held-out data."""
    model.eval()
    with torch.no_grad():
        return task.score(model)


def parameters_digest(model: nn.Module) -> str:
    """Digest of the bits of all parameters."""
    digest = blake2b(digest_size=8)
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().data)
    return digest.hexdigest()


def books(conductor: Conductor, registration: Registration) -> dict[str, Any] | None:
    """Totals of the session, which is closed here."""
    if registration is None:
        return None
    conductor.barrier("books")  # no rank leaves while a peer reads its daemon's status
    report = query(conductor.daemon, 0)["engine"]
    (session,) = report["sessions"].values()
    ledger = registration.ledger
    counts = {
        "sent": ledger.sent,
        "retransmitted": ledger.retransmitted,
        "lost": ledger.lost,
        "waived": ledger.waived,
        "reapplied": ledger.reapplied,
        "held_bytes": session["residual_bytes"],
        "injected": report["counters"].get("injected_loss", 0),
        "network": seen(report),
    }
    conductor.barrier("books")
    registration.close()
    return counts
