"""What one rank does in a test of training on a device: in a process of its own, plain values."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dlcp_client import connect, cross_step, ddp, exact, fused
from dlcp_lab.device.fake import IN, OUT, FakeDevice
from dlcpd.contract.policy import LossPolicy
from tests.client import fused_ranks
from tests.client.ddp_ranks import group, model, step, weights
from tests.client.device.engines import watched
from tests.client.real import TIMEOUT, kill

STEPS = 4


def patient(rank: int, store: str, seconds: float) -> Path:
    """The configuration of a daemon for which a host without a core for a while is no dead one."""
    file = Path(f"{store}.{rank}.toml")
    file.write_text(f"[network]\npeer_timeout = {seconds:.1f}\n")
    return file


def trained(rank: int, store: str, crossing: bool, view: bool) -> dict[str, Any]:
    """The same exact steps on the CPU and on a device: weights, and bytes copied each way."""
    with group(rank, store):
        here, _ = _steps(rank, store, None, crossing, view)
        device = FakeDevice(seed=rank, name=f"fake:{rank}")  # with delays of this rank's own
        with device.holding_all():
            there, size = _steps(rank, store, device, crossing, view)
        copied = {"out": device.copied[OUT], "in": device.copied[IN]}
        return {"here": here, "there": there, "copied": copied, "bytes": STEPS * size}


def _steps(
    rank: int, store: str, device: FakeDevice | None, crossing: bool, view: bool
) -> tuple[Any, int]:
    """Weights after STEPS, and the bytes of the gradients of one."""
    net = model(gradient_as_bucket_view=view)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    options: dict[str, Any] = {"timeout": TIMEOUT, "config": patient(rank, store, 10)}
    if crossing:
        handle: Any = cross_step.register(net, optimizer, **options)
    else:
        handle = ddp.register(net, **options)
    if device:
        watched(handle.session, device)
    for number in range(STEPS):
        torch.manual_seed(100 * number + rank)
        words, targets = torch.randint(0, 32, (16, 4)), torch.randn(16, 4, 4)
        optimizer.zero_grad()
        (net(words) - targets).square().mean().backward()
        optimizer.step()
    handle.close()
    return weights(net).numpy(), sum(p.nbytes for p in net.parameters())


# Of `fused` on a device: policy, and optimizer.
FUSED: dict[str, tuple[LossPolicy, str]] = {
    "exact": (exact(), "AdamW"),
    "rounded": (exact(gather="bf16"), "AdamW"),
    "LAMB": (exact(), "LAMB"),
    "program": (exact(), "Lion"),
}


def updated(rank: int, store: str, where: str) -> dict[str, Any]:
    """`fused` with a model on a device, by case: whether it equals the same on the CPU, and bytes
    that were copied each way in the steps."""
    found: dict[str, Any] = {}
    with group(rank, store):
        for name, (policy, kind) in FUSED.items():
            here, _ = _fused_steps(rank, store, policy, kind)
            device = FakeDevice(seed=rank, name=f"fake:{rank}")
            with device.holding_all():
                there, copied = _fused_steps(rank, store, policy, kind, on=(device, where))
            found[name] = torch.equal(here, there)
            found[f"{name}, bytes"] = copied
        with FakeDevice(seed=rank).holding_all() as device:
            on = device, where
            half, _ = _fused_steps(rank, store, exact(), "AdamW", on=on, dtype=torch.bfloat16)
        whole, _ = _fused_steps(rank, store, exact(), "AdamW")
        found["half"] = float((half - whole).norm() / whole.norm())
    return found


def _fused_steps(
    rank: int,
    store: str,
    policy: LossPolicy,
    kind: str,
    *,
    on: tuple[FakeDevice | None, str] = (None, ""),
    dtype: torch.dtype = torch.float32,
) -> tuple[torch.Tensor, list[float]]:
    """Weights after STEPS of `fused` and one more, with a change of weights in between; and what
    STEPS copied from and to the device, by the bytes of their gradients."""
    device, where = on
    net: Any = fused_ranks.network().to(dtype)
    optimizer = fused_ranks.optimizer_of(net, kind)
    config = patient(rank, store, 10)
    with connect(timeout=TIMEOUT, config=config, arena_bytes=64 << 20) as session:
        if device is not None:
            arena = session._connection.arena  # noqa: SLF001  # as `watched` does
            device.spare(arena._base, arena.size)  # noqa: SLF001  # likewise
            watched(session, device)
        handle = fused.register(net, optimizer, policy, session=session, where=where)
        before = dict(device.copied) if device else {}
        for number in range(STEPS + 1):
            if number == STEPS:  # the last one goes on from a saved state, and is not counted
                size = STEPS * sum(p.nbytes for p in net.parameters())
                after = dict(device.copied) if device else {}
                copied = [(after[way] - before[way]) / size for way in before]
                optimizer.load_state_dict(optimizer.state_dict())
            optimizer.zero_grad()
            torch.manual_seed(100 * number + rank)
            words, targets = torch.randint(0, 33, (16, 4)), torch.randn(16, 4, 5)
            (net(words) - targets.to(dtype)).square().mean().backward()
            handle.clip_grad_norm_(1.0)
            optimizer.step()
            if number == 1:  # as load_state_dict() does
                with torch.no_grad():
                    net[1].weight.mul_(0.5)
        handle.synchronize()
        assert len(optimizer.state_dict()["state"]) == len(list(net.parameters()))
        handle.close()
    return fused_ranks.weights(net).float(), copied


def losing_a_daemon(rank: int, store: str) -> str:
    """Rank 1's daemon is killed between two steps; what each rank's training raises."""
    with group(rank, store), FakeDevice(seed=rank).holding_all():
        net = model()
        handle = ddp.register(net, timeout=TIMEOUT, config=patient(rank, store, 3))
        step(net, rank, 0)
        dist.barrier()  # a rank may need the other's daemon for the end of its step
        assert handle.session is not None
        if rank == 1:
            kill(handle.session.daemon_pid)
        said = _raised(lambda: step(net, rank, 1))
        handle.close()
    return said


def _raised(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception as exc:
        return f"{type(exc).__name__}: {exc}"
    return "nothing"


def hierarchical(rank: int, store: str, world: int, each: int, device: bool) -> dict[str, Any]:
    """Hosts of `each` ranks, in name only: apart from what one group of all ranks yields."""
    with group(rank, store, world):
        local, _ = dist.new_subgroups(each)  # type: ignore[no-untyped-call]
        plain, ours = model(), model()
        with FakeDevice(seed=rank).holding_all() if device else nullcontext():
            config = patient(rank, store, 10)
            handle = ddp.register(ours, local=local, timeout=TIMEOUT, config=config)
            for number in range(STEPS):
                step(ours, rank, number)
            sent = handle.ledger.operations
            handle.close()
        for number in range(STEPS):
            step(plain, rank, number)
        apart = float((weights(plain) - weights(ours)).abs().max())
        return {"apart": apart, "weights": weights(ours).numpy(), "sent": sent}


def odd_hosts(rank: int, store: str) -> str:
    """One host of two ranks, one of one."""
    with group(rank, store, 3):
        groups = [dist.new_group([0, 1]), dist.new_group([2])]
        local = groups[rank // 2]
        return _raised(lambda: ddp.register(model(), local=local, timeout=TIMEOUT))


def from_the_readme(rank: int, store: str, text: str) -> int:
    """Run the README's example, train a step, and count what went through dlcpd."""
    with group(rank, store), FakeDevice(seed=rank).holding_all():
        names: dict[str, Any] = {
            "DistributedDataParallel": DistributedDataParallel,
            "model": nn.Linear(600, 600),
            "device": torch.device("cpu"),
        }
        exec(text.replace("ddp.register(", "handle = ddp.register("), names)  # noqa: S102
        names["model"](torch.ones(1, 600)).sum().backward()
        names["handle"].close()
        return int(names["handle"].ledger.operations)


def losing_a_daemon_among_hosts(rank: int, store: str) -> str:
    """Two hosts of two ranks; that of the last two loses its daemon between two steps."""
    with group(rank, store, 4):
        local, _ = dist.new_subgroups(2)  # type: ignore[no-untyped-call]
        os.environ["DLCPD_SHARE"] = "0"
        net, config = model(), patient(rank, store, 3)
        handle = ddp.register(net, local=local, timeout=TIMEOUT, config=config)
        step(net, rank, 0)
        dist.barrier()
        assert handle.session is not None
        if rank > 1:
            kill(handle.session.daemon_pid)
        said = _raised(lambda: step(net, rank, 1))
        handle.close()
        dist.barrier()
    return said
