"""What one rank does in a test of exact steps: in a process of its own; plain values come back."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist

from dlcp_client import Guard, bounded, cross_step, ddp
from dlcp_client.hooks import exact_steps as schedule
from tests.client.ddp_ranks import group, model, step, weights
from tests.client.guard_ranks import deferred
from tests.client.real import TIMEOUT

WARMUP = 2
OFTEN = 6  # steps from one exact step to the next, where a training has 50
STEPS = WARMUP + 5 * OFTEN
SAMPLED = 7  # bounded steps from one sample of the guard to the next


def exact_steps() -> list[int]:
    """The steps of the training that are exact after its warm-up."""
    return [WARMUP + 1 + n for n in range(STEPS - WARMUP) if n % OFTEN == OFTEN // 2]


def samples_of(sampled: list[int]) -> int:
    """The number of bounded steps beside exact ones that the guard does not sample."""
    beside = [n for n in range(STEPS - WARMUP) if 0 < abs(n % OFTEN - OFTEN // 2) <= 2]
    return len({WARMUP + 1 + n for n in beside} - set(sampled))


def compared(rank: int, store: str, how: str, config: Path) -> dict[str, Any]:
    """A bounded training under loss with a guard, and exact steps more often than usual."""
    options: dict[str, Any] = {
        "warmup_steps": WARMUP,
        "config": config,
        "timeout": TIMEOUT,
        "guard": Guard(every=SAMPLED, max_error=10.0, on_excess="stop"),
    }
    exact, waived, sampled, places = [], [], set(), set()
    with group(rank, store), ExitStack() as undo:
        undo.enter_context(patch.object(schedule, "EVERY", OFTEN))
        net, optimizer = model(), None
        if how == "ddp":
            handle: Any = ddp.register(net, bounded(0.2), **options)
        else:
            optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
            handle = cross_step.register(net, optimizer, bounded(0.2), **options)
        undo.callback(handle.close)
        for number in range(STEPS):
            before = handle.ledger.waived
            if optimizer is None:
                step(net, rank, number)
            else:
                deferred(net, optimizer, rank, number)
                handle.synchronize()
            waived.append(handle.ledger.waived - before)
            if handle.rules.exact_step:
                exact.append(handle.step)
            sampled.add(handle.guard.report().get("step", 0))
            places |= handle.rules.residuals.keys()
        out = {
            "exact": exact,
            "waived": waived,
            "sampled": sorted(sampled),
            "names": len(places),
            "compared": handle.totals.exchange,
            "summary": handle.summary(),
            "metrics": handle.metrics(),
            "weights": weights(net).numpy(),
        }
        dist.barrier()  # who leaves earlier ends the session of the other
        return out
