"""One rank of `dlcp_lab.bench.half_precision`, run by torchrun: DTYPE SEEDS STEPS."""

import json
import os
import sys
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dlcp_client import LossPolicy, bounded, ddp, exact
from dlcp_lab.training.tasks import HELD_OUT, Digits

WIDTH, BATCH, RATE = 1024, 32, 0.05
LAST: Final = 20  # steps of the mean final loss
POLICIES: Final = {"gloo": None, "exact": exact(), "bounded": bounded(0.02)}


class Scaler(torch.amp.GradScaler):
    """A GradScaler that accepts float16 gradients, as ShardedGradScaler does."""

    def _unscale_grads_(self, *arguments: Any) -> Any:
        return super()._unscale_grads_(*arguments[:-1], True)  # type: ignore[call-arg]  # variadic


def train(
    task: Digits, dtype: torch.dtype, seed: int, steps: int, policy: LossPolicy | None
) -> list[Any]:
    """Skipped steps, final loss, accuracy, segments waived, segments sent."""
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, 10),
    ).to(dtype)
    model = DistributedDataParallel(net)
    narrow = dtype == torch.float16
    scaler = Scaler("cpu", enabled=narrow, init_scale=2.0**16, growth_interval=LAST)
    sgd = torch.optim.SGD(model.parameters(), lr=RATE)
    handle = None
    if policy is not None:
        handle = ddp.register(model, policy, scaler=scaler if narrow else None)
    skipped, losses = 0, []
    for step in range(steps):
        generator = torch.Generator().manual_seed(1000 * seed + 2 * step + dist.get_rank())
        picked = torch.randint(HELD_OUT, len(task.labels), (BATCH,), generator=generator)
        sgd.zero_grad()
        said = model(task.images[picked].to(dtype)).float()
        loss = nn.functional.cross_entropy(said, task.labels[picked])
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]  # torch's own
        before = scaler.get_scale()
        scaler.step(sgd)
        scaler.update()
        skipped += scaler.get_scale() < before
        losses.append(loss.item())
    with torch.no_grad():
        right = net(task.images[:HELD_OUT].to(dtype)).argmax(1) == task.labels[:HELD_OUT]
    waived = sent = 0
    if handle is not None:
        waived, sent = handle.ledger.waived, handle.ledger.sent
        handle.close()
    last = losses[-LAST:]
    return [skipped, f"{sum(last) / len(last):.4f}", f"{right.float().mean():.4f}", waived, sent]


def main() -> None:
    """Rank 0 prints a row for each training."""
    dtype, seeds, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    task = Digits()
    for seed in range(1, seeds + 1):
        for name, policy in POLICIES.items():
            row = train(task, getattr(torch, dtype), seed, steps, policy)
            if dist.get_rank() == 0:
                print(json.dumps([dtype, seed, name, *row]), flush=True)
    # Gloo can hang if its group is freed right after the last operation.
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
