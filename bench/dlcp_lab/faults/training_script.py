"""A training like a user's, without an end: the drill injects faults and shows its output."""

import argparse
import os
import resource
import time
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dlcp_client import bounded, ddp

PAUSE: Final = 0.02  # seconds added to each step, which would otherwise be a busy loop
SAY: Final = 10  # steps per line of output


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", required=True, help="file that all ranks open")
    parser.add_argument(
        "--address-space-left",
        type=int,
        metavar="BYTES",
        help=("limit the address space from here on, as ulimit -v does"),
    )
    options = parser.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{options.store}", rank=rank, world_size=world
    )
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 8)
    )
    model = DistributedDataParallel(network)
    if options.address_space_left is not None:
        _leave(options.address_space_left)
    ddp.register(model, bounded(0.01))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    step = 0
    while True:
        optimizer.zero_grad()
        model(torch.randn(16, 64)).square().mean().backward()
        optimizer.step()
        step += 1
        if step % SAY == 0:
            print(f"step {step}", flush=True)
        time.sleep(PAUSE)


def _leave(size: int) -> None:
    """Limit the address space of this process to `size` bytes more than now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + size
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    main()
