"""What one rank does in a cross_step test: runs in a process of its own, and returns plain values.

Each training runs twice from the same start, with plain DDP and with cross_step, on one session.
"""

import copy
import io
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from dlcp_client import Session, bounded, connect, cross_step, exact
from tests.client.ddp_ranks import group, weights
from tests.client.real import TIMEOUT, kill

STEPS = 6
Made = tuple[DistributedDataParallel, Optimizer]
Training = Callable[[DistributedDataParallel, Optimizer, int], Any]


class Tied(nn.Module):
    """An embedding whose weight decodes too, attention that uses a child's weights, a norm, a
    convolution whose weight is not contiguous.
    """

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(32, 16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.norm = nn.LayerNorm(16)
        self.wide = nn.Sequential(nn.Linear(16, 600), nn.ReLU(), nn.Linear(600, 600), nn.ReLU())
        self.narrow = nn.Linear(600, 16)
        picture: Any = nn.Conv2d(2, 2, 3, padding=1)
        self.picture = picture.to(memory_format=torch.channels_last)
        self.bias = nn.Parameter(torch.zeros(32))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words)
        x = self.norm(x + self.attention(x, x, x, need_weights=False)[0])
        x = x + self.narrow(self.wide(x))
        x = x + self.picture(x.view(-1, 2, 8, 8)).reshape(x.shape)
        return nn.functional.linear(x, self.words.weight, self.bias)


def made(kind: type[Optimizer], settings: dict[str, Any], **options: Any) -> Made:
    torch.manual_seed(1)
    net = DistributedDataParallel(Tied(), bucket_cap_mb=0.5, **options)
    decayed = [p for p in net.parameters() if p.ndim > 1]
    others = [p for p in net.parameters() if p.ndim <= 1]
    groups: list[dict[str, Any]] = [{"params": decayed}, {"params": others, "lr": 0.002}]
    return net, kind(groups, **copy.deepcopy(settings))  # a tensor as learning rate is not shared


def loss(net: nn.Module, rank: int, number: int) -> Any:
    """On data that each rank draws for itself."""
    torch.manual_seed(100 * number + rank)
    words = torch.randint(0, 32, (4, 8))
    return nn.functional.cross_entropy(net(words).flatten(0, 1), words.flatten())


def ordinary(net: DistributedDataParallel, optimizer: Optimizer, rank: int) -> None:
    """zero_grad, forward, backward, step, and a scheduler right after it."""
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)
    for number in range(STEPS):
        optimizer.zero_grad()
        loss(net, rank, number).backward()
        optimizer.step()
        scheduler.step()


def compiled(net: DistributedDataParallel, optimizer: Optimizer, rank: int) -> None:
    """Trained through what torch.compile returns."""
    whole: Any = torch.compile(net, backend="aot_eager")
    with torch._dynamo.config.patch(optimize_ddp=False):  # noqa: SLF001  # it wants large buckets
        ordinary(whole, optimizer, rank)
    torch.compiler.reset()


def zeroing_late(net: DistributedDataParallel, optimizer: Optimizer, rank: int) -> None:
    """zero_grad between forward and backward; once in place, once by the model."""
    for number in range(STEPS):
        value = loss(net, rank, number)
        if number % 2:
            optimizer.zero_grad(set_to_none=number % 3 == 0)
        else:
            net.zero_grad()
        value.backward()
        optimizer.step()


def accumulating(net: DistributedDataParallel, optimizer: Optimizer, rank: int) -> None:
    """Two passes for a step, the first with and then without no_sync; a step without zero_grad."""
    for number in range(STEPS):
        if number % 2:
            loss(net, rank, 10 + number).backward()
        else:
            with net.no_sync():
                loss(net, rank, 10 + number).backward()
        loss(net, rank, number).backward()
        optimizer.step()
        if number != 3:
            optimizer.zero_grad()


def clipping(net: DistributedDataParallel, optimizer: Optimizer, rank: int) -> list[float]:
    """Clipped, and the norms logged."""
    norms = []
    for number in range(STEPS):
        optimizer.zero_grad()
        loss(net, rank, number).backward()
        norms.append(float(nn.utils.clip_grad_norm_(net.parameters(), 0.5)))
        optimizer.step()
    return norms


def scaling(net: DistributedDataParallel, optimizer: Optimizer, rank: int) -> float:
    """With a GradScaler; one step overflows and is skipped."""
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for number in range(STEPS):
        optimizer.zero_grad()
        value = loss(net, rank, number) * (float("inf") if number == 2 else 1.0)
        scaler.scale(value).backward()
        scaler.step(optimizer)
        scaler.update()
    return float(scaler.get_scale())


def validating(net: DistributedDataParallel, optimizer: Optimizer, rank: int) -> list[float]:
    """Evaluates between steps, in every mode that forbids gradients."""
    seen = []
    for number in range(STEPS):
        optimizer.zero_grad()
        loss(net, rank, number).backward()
        if number == 1:
            net.eval()
            seen.append(float(loss(net, rank, 40).detach()))  # before its step
            net.module.train()
        optimizer.step()
        net.eval()
        with torch.no_grad() if number % 2 else torch.inference_mode():
            seen.append(float(loss(net.module if number % 3 else net, rank, 50)))
        net.module.train()
    return seen


def checkpointing(net: DistributedDataParallel, optimizer: Optimizer, rank: int) -> list[float]:
    """Saves after a step, goes astray, loads, goes on. A copy sees what is saved."""
    ordinary(net, optimizer, rank)
    file = io.BytesIO()
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, file)
    clipping(net, optimizer, rank)
    sums = [float(weights(copy.deepcopy(net.module)).sum())]
    ordinary(net, optimizer, rank)
    file.seek(0)
    saved = torch.load(file)
    optimizer.load_state_dict(saved["optimizer"])  # first: loading the model lands all
    net.load_state_dict(saved["model"])
    ordinary(net, optimizer, rank)
    return [*sums, float(weights(net).sum())]


OPTIMIZERS: dict[str, tuple[type[Optimizer], dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "nesterov": (
        torch.optim.SGD,
        {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True},
    ),
    "foreach": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "foreach": True}),
    "adam": (torch.optim.Adam, {"lr": 0.01}),
    "adamw": (torch.optim.AdamW, {"lr": torch.tensor(0.01), "foreach": False}),
}  # fmt: skip
TRAININGS: dict[str, tuple[Training, str]] = {
    **{f"ordinary {name}": (ordinary, name) for name in OPTIMIZERS},
    "zeroing late": (zeroing_late, "nesterov"),
    "accumulating": (accumulating, "nesterov"),
    "clipping": (clipping, "adam"),
    "scaling": (scaling, "adam"),
    "validating": (validating, "nesterov"),
    "checkpointing": (checkpointing, "adam"),
}


def compared_compiled(rank: int, store: str) -> dict[str, Any]:
    """A compiled model with plain DDP and with cross_step."""
    with group(rank, store), connect(timeout=TIMEOUT) as session:
        return _compared(session, rank, compiled, "nesterov", view=False)


def compared(rank: int, store: str, view: bool) -> dict[str, dict[str, Any]]:
    """Each training with plain DDP and with cross_step."""
    with group(rank, store), connect(timeout=TIMEOUT) as session:
        return {name: _compared(session, rank, *row, view) for name, row in TRAININGS.items()}


def _compared(
    session: Session, rank: int, training: Training, optimizer: str, view: bool
) -> dict[str, Any]:
    kind, settings = OPTIMIZERS[optimizer]
    options = {"gradient_as_bucket_view": view}
    plain, ours = made(kind, settings, **options), made(kind, settings, **options)
    start = weights(plain[0])
    handle = cross_step.register(*ours, exact(), session=session)
    said = [training(*each, rank) for each in (plain, ours)]
    handle.close()
    assert {type(p) for p in ours[0].parameters()} == {nn.Parameter}
    return {
        "apart": float((weights(plain[0]) - weights(ours[0])).abs().max()),
        "moved": float((weights(plain[0]) - start).abs().max()),
        "said": said,
        "weights": weights(ours[0]).numpy(),
    }


def bounded_training(rank: int, store: str, config: str) -> dict[str, Any]:
    """Under loss: what was asked of the session, and what came of it."""
    asked: list[tuple[int, str, str, int, tuple[Any, ...]]] = []
    with group(rank, store):
        net, optimizer = made(torch.optim.SGD, {"lr": 0.1})
        policy = bounded(0.2, per_class={"front": 0.1})
        handle = cross_step.register(
            net, optimizer, policy, warmup_steps=3, config=config, timeout=TIMEOUT
        )
        assert handle.session is not None
        original = handle.session.all_reduce

        def listening(tensor: torch.Tensor, *args: Any, **more: Any) -> Any:
            exempt = sum(stop - start for start, stop in more.get("exempt", ()))
            mode, layers = more["policy"].mode, tuple(more.get("layers", ()))
            asked.append((handle.step, mode, more.get("name", ""), exempt, layers))
            return original(tensor, *args, **more)

        handle.session.all_reduce = listening  # type: ignore[method-assign]
        for _ in range(2):
            ordinary(net, optimizer, rank)
        handle.synchronize()
        ledger = handle.ledger
        handle.close()
        return {"asked": asked, "weights": weights(net).numpy(), "waived": ledger.waived}


def coded_training(rank: int, store: str) -> dict[str, Any]:
    """With a codec after the first step: how far from the framework's own, and the weights."""
    with group(rank, store):
        plain, ours = (made(torch.optim.SGD, {"lr": 0.1}) for _ in range(2))
        handle = cross_step.register(*ours, exact(codec="int8"), warmup_steps=1, timeout=TIMEOUT)
        for net, optimizer in (plain, ours):
            ordinary(net, optimizer, rank)
        handle.synchronize()
        handle.close()
        apart = (weights(ours[0]) - weights(plain[0])).abs().max().item()
        return {"apart": apart, "weights": weights(ours[0]).numpy()}


def losing_a_daemon(rank: int, store: str) -> list[str]:
    """Rank 1's daemon is killed between two steps; what each rank's training raises."""
    said = []
    with group(rank, store):
        net, optimizer = made(torch.optim.SGD, {"lr": 0.1})
        handle = cross_step.register(net, optimizer, timeout=TIMEOUT)
        ordinary(net, optimizer, rank)
        assert handle.session is not None
        if rank == 1:
            kill(handle.session.daemon_pid)
        for number in range(4):
            try:
                optimizer.zero_grad()
                loss(net, rank, number).backward()
                optimizer.step()
            except Exception as exc:
                said.append(f"{type(exc).__name__}: {exc}")
        handle.close()
    return said


def without_a_daemon(rank: int, store: str) -> dict[str, Any]:
    """Rank 1 finds no daemon, and all go on without."""
    options: dict[str, Any] = {"socket": "/nonexistent/dlcpd.sock"} if rank == 1 else {}
    with group(rank, store), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        net, optimizer = made(torch.optim.SGD, {"lr": 0.1})
        handle = cross_step.register(net, optimizer, fallback=True, timeout=TIMEOUT, **options)
        ordinary(net, optimizer, rank)
        handle.synchronize()
        handle.close()
        texts = [str(w.message) for w in caught if w.category is RuntimeWarning]
        return {"warnings": texts, "weights": weights(net).numpy(), "session": handle.session}
