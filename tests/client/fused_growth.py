"""What training steps of `fused` leave behind: `python -m tests.client.fused_growth 10000`."""

import gc
import sys
import tempfile
from pathlib import Path

import psutil
from torch.amp import GradScaler

from dlcp_client import bounded, fused
from tests.client.ddp_ranks import group
from tests.client.fused_ranks import loss_of, network, optimizer_of, session_of, small_buckets
from tests.client.test_ddp import on_each_rank

WARM = 100  # steps until caches are full


def counted(rank: int, store: str, steps: int) -> list[dict[str, int]]:
    """One rank: counts after WARM steps, and after all. Gradients are accumulated, scaled and
    clipped."""
    seen = []
    small_buckets()
    with group(rank, store), session_of() as session:
        net, scaler = network(), GradScaler("cpu", 1024.0)
        optimizer = optimizer_of(net, "AdamW")
        handle = fused.register(net, optimizer, bounded(0.01), session=session, scaler=scaler)
        for number in range(1, steps + 1):
            optimizer.zero_grad()
            with handle.no_sync():
                scaler.scale(loss_of(net, rank, number % 50)).backward()
            scaler.scale(loss_of(net, rank, number % 49)).backward()
            scaler.unscale_(optimizer)
            handle.clip_grad_norm_(1.0)
            scaler.step(optimizer)
            scaler.update()
            if number in (WARM, steps):
                handle.synchronize()
                session.world.barrier().wait()
                seen.append(_counts())
        handle.close()
    return seen


def _counts() -> dict[str, int]:
    gc.collect()
    own = psutil.Process()
    daemons = own.children(recursive=True)  # of the rank that has started them
    return {
        "objects": len(gc.get_objects()),
        "descriptors": own.num_fds(),
        "threads": own.num_threads(),
        "KiB": own.memory_info().rss >> 10,
        "descriptors of daemons": sum(one.num_fds() for one in daemons),
        "KiB of daemons": sum(one.memory_info().rss >> 10 for one in daemons),
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for number, rank in enumerate(on_each_rank(counted, Path(place), int(sys.argv[1]))):
            for counts in rank:
                sys.stdout.write(f"rank {number}: {counts}\n")
