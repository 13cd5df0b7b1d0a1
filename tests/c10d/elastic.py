"""A job that loses a rank at its first start and is started again: `torchrun --max-restarts 1`.

Arguments: a folder; every rank that ends well leaves a file there.
"""

import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import dlcp_client  # noqa: F401  # registers the backend

STEPS = 5
DIES_AT = 2


def main() -> None:
    """One rank."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    start = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    torch.set_num_threads(1)
    dist.init_process_group("dlcp", timeout=timedelta(seconds=30))
    total = torch.zeros(1000)
    for step in range(STEPS):
        if start == 0 and rank == 1 and step == DIES_AT:
            os._exit(9)
        gradient = torch.full((1000,), float(rank + step))
        dist.all_reduce(gradient)
        total += gradient
    expected = sum(sum(range(size)) + size * step for step in range(STEPS))
    assert torch.equal(total, torch.full((1000,), float(expected)))
    dist.destroy_process_group()
    (Path(sys.argv[1]) / f"rank{rank}.start{start}").touch()


if __name__ == "__main__":
    main()
