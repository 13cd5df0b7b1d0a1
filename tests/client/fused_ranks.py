"""What one rank does in a test of `fused`: runs in a process of its own, returns plain values."""

import copy
from collections.abc import Callable
from contextlib import closing
from math import inf, isfinite
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.amp import GradScaler
from torch.distributed.checkpoint.state_dict import (
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD, Adam, AdamW, Optimizer

from dlcp_client import Session, bounded, connect, ddp, exact, fused
from dlcp_client.fused import flat_bucket
from dlcp_client.fused import language as fl
from dlcpd.contract.errors import BadConfig
from tests.client.ddp_ranks import group
from tests.client.real import TIMEOUT

STEPS = 20
EXACTLY = ("momentum", "AdamW")  # also with a scaler and without clipping, to the bit
Make = Callable[..., Optimizer]
LION: dict[str, Any] = {"weight_decay": 0.1, "kernel": "eager"}


@fl.program(g=fl.local, w=fl.replicated, m=fl.replicated, lr=fl.scalar, weight_decay=fl.scalar)
def lion(g: Any, w: Any, m: Any, lr: Any, weight_decay: Any) -> Any:
    """Chen et al., Symbolic Discovery of Optimization Algorithms, 2023."""
    g = fl.all_reduce(g, "avg")
    direction = (0.9 * m + 0.1 * g).sign()
    fl.update(m, 0.99 * m + 0.01 * g)
    return fl.update(w, w - lr * (direction + weight_decay * w))


OPTIMIZERS: dict[str, tuple[type[Optimizer], dict[str, Any]]] = {
    "SGD": (SGD, {"lr": 0.05, "weight_decay": 0.01}),
    "momentum": (SGD, {"lr": 0.02, "momentum": 0.9, "dampening": 0.1}),
    "Nesterov": (SGD, {"lr": 0.02, "momentum": 0.9, "nesterov": True}),
    "Adam": (Adam, {"lr": 0.003, "weight_decay": 0.01}),
    "AMSGrad": (Adam, {"lr": 0.003, "amsgrad": True}),
    "AdamW": (AdamW, {"lr": 0.003, "weight_decay": 0.1}),
    "LAMB": (fused.LAMB, {"lr": 0.01, "weight_decay": 0.1, "kernel": "eager"}),
    "Lion": (fused.ProgramOptimizer, {"program": lion, "lr": 0.001, **LION}),
}
STATES = {
    **{"SGD": 0, "momentum": 1, "Nesterov": 1, "Lion": 1},
    **{"Adam": 2, "AMSGrad": 3, "AdamW": 2, "LAMB": 2},
}


def network() -> nn.Sequential:
    """Several buckets of 256 KiB, and parameters whose sizes are no multiples of a vector."""
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Embedding(33, 63),
        nn.Linear(63, 301),
        nn.LayerNorm(301),
        nn.ReLU(),
        nn.Linear(301, 301),
        nn.ReLU(),
        nn.Linear(301, 5),
    )


def optimizer_of(net: nn.Module, name: str, **more: Any) -> Optimizer:
    """Of two groups."""
    kind, options = OPTIMIZERS[name]
    made: Any = kind
    if kind in (fused.LAMB, fused.ProgramOptimizer):
        more.pop("fused", None)  # torch has no kernel of it
    plain = [p for p in net.parameters() if p.dim() < 2]
    rest = [p for p in net.parameters() if p.dim() >= 2]
    groups = [{"params": plain, "weight_decay": 0.0}, {"params": rest}]
    optimizer: Optimizer = made(groups, **options, **more)
    return optimizer


def loss_of(net: nn.Module, rank: int, number: int) -> Any:
    torch.manual_seed(100 * number + rank)
    words, targets = torch.randint(0, 33, (16, 4)), torch.randn(16, 4, 5)
    return (net(words) - targets).square().mean()


def backward(net: nn.Module, rank: int, number: int) -> None:
    loss_of(net, rank, number).backward()


def train(net: nn.Module, optimizer: Optimizer, rank: int, steps: range) -> None:
    """The loop of a user, with a scheduler."""
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 7, 0.5)
    for number in steps:
        optimizer.zero_grad()
        backward(net, rank, number)
        optimizer.step()
        scheduler.step()


def weights(net: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()])


def difference(one: nn.Module, two: nn.Module) -> float:
    """Between their weights, as a fraction of these."""
    return float((weights(one) - weights(two)).norm() / weights(two).norm())


def same(one: Any, two: Any) -> bool:
    """Whether two states are equal, to the bit."""
    if isinstance(one, torch.Tensor):
        return isinstance(two, torch.Tensor) and torch.equal(one, two)
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(same, one, two))
    return bool(one == two)


def equal(name: str, one: Any, two: Any) -> bool:
    """As `same`; of LAMB, whose norms are added up in another order, to 1e-6."""
    if name != "LAMB":
        return same(one, two)
    try:
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-6)
    except AssertionError:
        return False
    return True


def session_of(arena_bytes: int = 64 << 20, **options: Any) -> Session:
    return connect(timeout=TIMEOUT, arena_bytes=arena_bytes, **options)


def compared(rank: int, store: str, world: int) -> dict[str, dict[str, Any]]:
    """Each optimizer against DDP with torch's fused kernel, over Gloo and over dlcpd."""
    small_buckets()
    found = {}
    with group(rank, store, world), session_of() as session:
        for name in OPTIMIZERS:
            net = network()
            if rank:
                nn.init.zeros_(net.get_parameter("0.weight"))  # rank 0's counts
            optimizer = optimizer_of(net, name)
            handle = fused.register(net, optimizer, session=session)
            train(net, optimizer, rank, range(STEPS))
            parts, state = handle.state_bytes, optimizer.state_dict()["state"]
            handle.close()
            over_gloo = reference(name, rank)
            over_dlcp = reference(name, rank, session)
            sizes = [p.numel() for p in net.parameters()]
            found[name] = {
                "apart": difference(net, over_gloo[0]),
                "equal": equal(name, weights(net), weights(over_dlcp[0])),
                "state": equal(name, state, over_dlcp[1].state_dict()["state"]),
                "returned": same(optimizer.state_dict()["state"], state),
                "parts": parts,
                "whole": STATES[name] * 4 * sum(sizes),
                "weights": weights(net).numpy(),
                "clipped": whole_loop(name, rank, session, 0.3),
                "scaled": whole_loop(name, rank, session, inf) if name in EXACTLY else None,
            }
    return found


def small_buckets() -> None:
    """Several to a small model."""
    flat_bucket.LARGEST = 1 << 18  # type: ignore[misc]


def whole_loop(
    name: str, rank: int, session: Session, most: float, *, tune: bool = False
) -> dict[str, Any]:
    """A training with all that changes gradients, by `fused` with a DDP model and by
    `ddp.register`: differences, scales, and steps without a finite norm. `most`: of the norm."""
    nets, scalers = [network(), network()], [GradScaler("cpu", 1024.0, 2.0, 0.5, 4) for _ in "ab"]
    models = [DistributedDataParallel(net, bucket_cap_mb=0.25) for net in nets]
    optimizers = [optimizer_of(nets[0], name), optimizer_of(nets[1], name, fused=True)]
    handle = fused.register(models[0], optimizers[0], session=session, scaler=scalers[0], tune=tune)
    other = ddp.register(models[1], session=session)
    clips: list[Callable[[float], Any]] = [
        handle.clip_grad_norm_,
        lambda most: clip_grad_norm_(nets[1].parameters(), most),
    ]
    norms = []
    for model, optimizer, scaler, clip in zip(models, optimizers, scalers, clips, strict=True):
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 7, 0.5)
        for number in range(STEPS):
            optimizer.zero_grad()
            with model.no_sync():
                scaler.scale(loss_of(model, rank, 50 + number)).backward()
            infinite = inf if rank == 1 and number == 5 else 1.0
            scaler.scale(loss_of(model, rank, number) * infinite).backward()
            scaler.unscale_(optimizer)
            norms.append(float(clip(most)))
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
    handle.close()
    other.close()
    pairs = zip(norms[:STEPS], norms[STEPS:], strict=True)
    return {
        "apart": difference(*nets),
        "scales": [scaler.get_scale() for scaler in scalers],
        "norms apart": max(abs(a - b) / b for a, b in pairs if isfinite(b)),
        "infinite": [at for at, norm in enumerate(norms) if not isfinite(norm)],
    }


def reference(name: str, rank: int, session: Session | None = None) -> tuple[nn.Module, Optimizer]:
    net = network()
    optimizer = optimizer_of(net, name, fused=True)
    model = DistributedDataParallel(net, bucket_cap_mb=0.25)
    handle = ddp.register(model, session=session) if session else None
    train(model, optimizer, rank, range(STEPS))
    if handle:
        handle.close()
    return net, optimizer


def resumed(rank: int, store: str, world: int, file: str, steps: range) -> Any:
    """Go on from a file, if it is there; rank 0 writes it anew. Returns weights."""
    with group(rank, store, world), session_of() as session:
        net = network()
        optimizer = optimizer_of(net, "AdamW")
        with closing(fused.register(net, optimizer, session=session)) as handle:
            if Path(file).exists():
                saved = torch.load(file)
                net.load_state_dict(saved["net"])
                optimizer.load_state_dict(saved["optimizer"])
                assert same(optimizer.state_dict(), saved["optimizer"]), "before the next step"
            for number in steps:  # every rank has the data of rank 0: worlds give the same
                optimizer.zero_grad()
                backward(net, 0, number)
                optimizer.step()
            made = {"net": net.state_dict(), "optimizer": handle.state_dict()}
        if not rank:
            torch.save(made, file)
        return weights(net).numpy()


def checkpointed(rank: int, store: str, world: int, folder: str, steps: range) -> Any:
    """As `resumed`, with checkpoints of torch.distributed.checkpoint."""
    with group(rank, store, world), session_of() as session:
        net = network()
        optimizer = optimizer_of(net, "AdamW", fused=True)
        if Path(folder, ".metadata").exists():
            state = {"net": net.state_dict(), "optimizer": get_optimizer_state_dict(net, optimizer)}
            load(state, checkpoint_id=folder)
            net.load_state_dict(state["net"])
            set_optimizer_state_dict(net, optimizer, state["optimizer"])
        with closing(fused.register(net, optimizer, session=session)):
            for number in steps:  # as in `resumed`
                optimizer.zero_grad()
                backward(net, 0, number)
                optimizer.step()
            state = {"net": net.state_dict(), "optimizer": get_optimizer_state_dict(net, optimizer)}
            save(state, checkpoint_id=folder)
        return weights(net).numpy()


def rounded_training(rank: int, store: str, world: int) -> dict[str, Any]:
    """With weights that travel as bfloat16, against the same by hand, and against float32."""
    small_buckets()
    with group(rank, store, world), session_of() as session:
        net = network()
        optimizer = optimizer_of(net, "AdamW")
        handle = fused.register(net, optimizer, exact(gather="bf16"), session=session)
        backward(net, rank, 0)
        handle.discard()
        handle.gather_masters()
        assert same(net.state_dict(), network().state_dict()), "as before their rounding"
        train(net, optimizer, rank, range(STEPS))
        masters = by_hand(rank, session)
        travelled = [rounded(one) for one in masters]
        found: dict[str, Any] = {"rounded": same([p.detach() for p in net.parameters()], travelled)}
        handle.gather_masters()
        found["masters"] = same([p.detach() for p in net.parameters()], masters)
        net.load_state_dict({name: -value for name, value in net.state_dict().items()})
        optimizer.load_state_dict(optimizer.state_dict())
        backward(net, rank, 0)
        with pytest.raises(BadConfig, match=r"between backward\(\) and step\(\)"):
            handle.gather_masters()
        for group_ in optimizer.param_groups:
            group_.update(lr=0.0, weight_decay=0.0)
        optimizer.step()
        found["changed"] = same([p.detach() for p in net.parameters()], [-one for one in travelled])
        handle.close()
        found["returned"] = same([p.detach() for p in net.parameters()], [-one for one in masters])
        plain, _ = reference("AdamW", rank, session)
        apart = [
            (one - p.detach()).norm() for one, p in zip(masters, plain.parameters(), strict=True)
        ]
        found["apart"] = float(torch.stack(apart).norm() / weights(plain).norm())
        return found


def rounded(one: torch.Tensor) -> torch.Tensor:
    return one.bfloat16().float()


def by_hand(rank: int, session: Session) -> list[torch.Tensor]:
    """Float32 masters of a DDP training whose weights are rounded after each step."""
    net = network()
    model = DistributedDataParallel(net, bucket_cap_mb=0.25)
    handle = ddp.register(model, session=session)
    masters = copy.deepcopy(net)
    optimizer = optimizer_of(masters, "AdamW", fused=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 7, 0.5)
    for number in range(STEPS):
        model.zero_grad()
        backward(model, rank, number)
        for mine, master in zip(net.parameters(), masters.parameters(), strict=True):
            master.grad = mine.grad
        optimizer.step()
        scheduler.step()
        with torch.no_grad():
            for mine, master in zip(net.parameters(), masters.parameters(), strict=True):
                mine.copy_(rounded(master))
    handle.close()
    return [one.detach() for one in masters.parameters()]


def bounded_training(rank: int, store: str, config: str) -> dict[str, Any]:
    """Over daemons that lose datagrams; large layers, so that something is waived."""
    with group(rank, store), session_of(256 << 20, config=config) as session:
        torch.manual_seed(1)
        net = nn.Sequential(nn.Linear(600, 600), nn.ReLU(), nn.Linear(600, 600))
        optimizer = SGD(net.parameters(), lr=0.01, momentum=0.9)
        handle = fused.register(net, optimizer, bounded(0.2), session=session, warmup_steps=2)
        for number in range(12):
            optimizer.zero_grad()
            torch.manual_seed(100 * number + rank)
            net(torch.randn(16, 600)).square().mean().backward()
            optimizer.step()
        waived, steps = handle.ledger.waived, handle.totals.steps
        handle.close()
        return {"weights": weights(net).numpy(), "waived": waived, "steps": steps}
