"""One rank of `dlcp_lab.bench.group_life`, run by torchrun: HOW is gloo, dlcp, exact or bounded."""

import json
import os
import resource
import sys
import time
from typing import Final

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch.nn.parallel import DistributedDataParallel

from dlcp_client import bounded, ddp, exact

POLICIES: Final = {"exact": exact(), "bounded": bounded(0.01)}
WIDTH, LAYERS, STEPS = 2048, 8, 4  # 134 MB of gradients


def life(backend: str) -> dict[str, float]:
    """Seconds to create a group and a subgroup and to destroy both; two passes."""
    found: dict[str, float] = {}
    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    for name in ("first init", "later init"):
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        # A prefix per pass: a Gloo rank could otherwise read its peer's address of the last pass.
        place = PrefixStore(name, store)
        began = time.perf_counter()
        dist.init_process_group(backend, store=place, rank=rank, world_size=world)
        made = time.perf_counter()
        dist.new_group([0, 1])
        split = time.perf_counter()
        dist.all_reduce(torch.ones(4))
        used = time.perf_counter()
        dist.destroy_process_group()
        ended = time.perf_counter()
        found |= {name: made - began, "new_group": split - made, "destroy": ended - used}
    return found


def train(how: str) -> None:
    """STEPS steps of DDP, over a hook or a backend. The group is not destroyed: Gloo can hang if it
    is freed right after its last operation, because its threads need the GIL."""
    dist.init_process_group("gloo" if how in POLICIES else how)
    layers = [nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)]
    model = DistributedDataParallel(nn.Sequential(*layers))
    handle = ddp.register(model, POLICIES[how]) if how in POLICIES else None
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        sgd.zero_grad()
        model(torch.ones(2, WIDTH)).sum().backward()
        sgd.step()
    if handle is not None:
        handle.close()


def main() -> None:
    """Run; rank 0 prints its measurements as JSON."""
    how, rank = sys.argv[1], int(os.environ["RANK"])
    torch.set_num_threads(1)
    found: dict[str, float] = {} if how in POLICIES else life(how)
    train(how)
    found["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if rank == 0:
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
