"""What one rank does in a DDP test: runs in a process of its own, and returns plain values."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dlcp_client import DlcpError, bounded, ddp, exact
from tests.client.real import TIMEOUT, kill

WORLD = 2

# Process groups are never freed. Freeing one joins Gloo's threads while it holds the interpreter's
# lock, and a thread that just ended an operation needs the lock to free that: a rank whose last
# operation is its last act can hang for ever.
KEPT: list[Any] = []


@contextmanager
def group(rank: int, store: str, world: int = WORLD) -> Iterator[None]:
    os.environ["MASTER_ADDR"] = "localhost"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{store}", rank=rank, world_size=world)
    KEPT.append(dist.group.WORLD)
    try:
        yield
    finally:
        dist.destroy_process_group()


def model(**options: Any) -> DistributedDataParallel:
    """Several buckets, one of them above 1 MiB, with parameters of every kind."""
    torch.manual_seed(1)
    layers = [
        nn.Embedding(32, 64),
        nn.Linear(64, 600),
        nn.LayerNorm(600),
        nn.ReLU(),
        nn.Linear(600, 600),
        nn.ReLU(),
        nn.Linear(600, 4),
    ]
    return DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=0.5, **options)


def step(net: nn.Module, rank: int, number: int) -> None:
    """One step of plain SGD on data that each rank draws for itself."""
    torch.manual_seed(100 * number + rank)
    words, targets = torch.randint(0, 32, (16, 4)), torch.randn(16, 4, 4)
    net.zero_grad()
    (net(words) - targets).square().mean().backward()
    with torch.no_grad():
        for p in net.parameters():
            if p.grad is not None:
                p.sub_(p.grad, alpha=0.01)


def weights(net: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def exact_training(rank: int, store: str, view: bool) -> dict[str, Any]:
    """The same training with gloo and with dlcpd. A host without a core for a second is no dead
    peer."""
    patient = Path(f"{store}.{rank}.toml")
    patient.write_text("[network]\npeer_timeout = 10.0\n")
    with group(rank, store):
        plain, ours = model(gradient_as_bucket_view=view), model(gradient_as_bucket_view=view)
        handle = ddp.register(ours, exact(), timeout=TIMEOUT, config=patient)
        assert handle.session is not None
        empty, made = handle.session.empty, [0] * 5

        def counted(*args: Any, **more: Any) -> torch.Tensor:
            made[number] += 1
            return empty(*args, **more)

        handle.session.empty = counted  # type: ignore[method-assign]
        for number in range(5):
            for net in (plain, ours):
                with net.no_sync():
                    torch.manual_seed(rank)
                    net(torch.randint(0, 32, (4, 4))).sum().backward()
                step(net, rank, number)
        apart = float((weights(plain) - weights(ours)).abs().max())
        out = {"apart": apart, "weights": weights(ours).numpy(), "steps": handle.step}
        out["operations"] = handle.ledger.operations
        out["made"] = made
        handle.close()
        return out


def bounded_training(rank: int, store: str, config: str) -> dict[str, Any]:
    """Under loss: what was asked of the session, and what came of it."""
    asked: list[tuple[int, str, str, int]] = []
    with group(rank, store):
        net = model()
        handle = ddp.register(net, bounded(0.2), warmup_steps=3, config=config, timeout=TIMEOUT)
        assert handle.session is not None
        original = handle.session.all_reduce

        def listening(tensor: torch.Tensor, *args: Any, **more: Any) -> Any:
            exempt = sum(stop - start for start, stop in more.get("exempt", ()))
            mode = more["policy"].mode
            asked.append((handle.step, mode, more.get("name", ""), exempt))
            return original(tensor, *args, **more)

        handle.session.all_reduce = listening  # type: ignore[method-assign]
        for number in range(8):
            step(net, rank, number)
        ledger = handle.ledger
        handle.close()
        return {"asked": asked, "weights": weights(net).numpy(), "waived": ledger.waived}


def coded_training(rank: int, store: str) -> dict[str, Any]:
    """The same training with gloo, and with a codec: what was asked for, and how far apart."""
    asked: list[tuple[int, str, str]] = []
    with group(rank, store):
        plain, ours = model(), model()
        handle = ddp.register(ours, exact(codec="int8"), warmup_steps=3, timeout=TIMEOUT)
        assert handle.session is not None
        original = handle.session.all_reduce

        def listening(tensor: torch.Tensor, *args: Any, **more: Any) -> Any:
            asked.append((handle.step, more["policy"].codec, more.get("name", "")))
            return original(tensor, *args, **more)

        handle.session.all_reduce = listening  # type: ignore[method-assign]
        for number in range(8):
            step(plain, rank, number)
            step(ours, rank, number)
        handle.close()
        apart = float((weights(plain) - weights(ours)).abs().max())
        return {"asked": asked, "weights": weights(ours).numpy(), "apart": apart}


def float16_at_its_limit(rank: int, store: str, config: str) -> dict[str, Any]:
    """Gradients of 40,000, twice of which is beyond float16: the averages of each step."""
    with group(rank, store):
        layer = nn.Linear(1024, 1024, bias=False).half()
        net = DistributedDataParallel(layer)
        handle = ddp.register(net, bounded(0.01), warmup_steps=2, timeout=TIMEOUT, config=config)
        averages = []
        for number in range(9):
            layer.zero_grad()
            size = 40_000 if number < 8 else 10_000
            (net(torch.ones(1, 1024).half()).float().sum() * size).backward()
            assert layer.weight.grad is not None
            averages.append(layer.weight.grad.float().clone())
        assert handle.session is not None
        waived = handle.session.ledger.waived
        handle.close()
        highest = [float(average.max()) for average in averages]
        return {"waived": waived, "highest": highest, "total": torch.stack(averages).sum(0)}


def losing_a_daemon(rank: int, store: str) -> list[str]:
    """Rank 1's daemon is killed between two steps; what each rank's training raises."""
    said = []
    with group(rank, store):
        net = model()
        handle = ddp.register(net, timeout=TIMEOUT)
        step(net, rank, 0)
        step(net, rank, 1)
        assert handle.session is not None
        if rank == 1:
            kill(handle.session.daemon_pid)
        for number in (2, 3):
            try:
                step(net, rank, number)
            except Exception as exc:
                said.append(f"{type(exc).__name__}: {exc}")
        handle.close()
    return said


def without_a_daemon(rank: int, store: str, fallback: bool) -> dict[str, Any]:
    """Rank 1 finds no daemon."""
    options: dict[str, Any] = {"socket": "/nonexistent/dlcpd.sock"} if rank == 1 else {}
    with group(rank, store), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        net = model()
        try:
            handle = ddp.register(net, fallback=fallback, timeout=TIMEOUT, **options)
        except DlcpError as exc:
            return {"error": f"{type(exc).__name__}: {exc}"}
        step(net, rank, 0)
        handle.close()
        texts = [str(w.message) for w in caught if w.category is RuntimeWarning]
        return {"warnings": texts, "weights": weights(net).numpy(), "session": handle.session}


def alone(rank: int, store: str) -> bool:
    """A world of one trains as ever."""
    with group(rank, store, world=1):
        net = model()
        handle = ddp.register(net)
        step(net, rank, 0)
        handle.close()
        return handle.session is None and handle.ledger.operations == 0
