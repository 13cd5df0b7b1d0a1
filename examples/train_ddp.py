"""Train a small model with gradients through dlcpd, on two processes of this machine:

    torchrun --nproc-per-node 2 examples/train_ddp.py

On several machines: the same, with torchrun's --nnodes and --rdzv-endpoint. The two lines
that make the difference are marked.
"""

# an example prints
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dlcp_client import bounded, ddp  # <- added

STEPS = 60
BATCH = 64  # samples per rank and step


def network(width: int) -> nn.Sequential:
    """A perceptron from 64 numbers to 8."""
    return nn.Sequential(
        nn.Linear(64, width),
        nn.LayerNorm(width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, 8),
    )


def main() -> None:
    """Train a wide network on the outputs of a narrow one."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    teacher, student = network(32), DistributedDataParallel(network(1024))
    handle = ddp.register(student, bounded(0.01))  # <- added
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)
    torch.manual_seed(1 + rank)  # from here on, every rank draws its own samples

    for step in range(STEPS):
        samples = torch.randn(BATCH, 64)
        with torch.no_grad():
            answers = teacher(samples)
        loss = nn.functional.mse_loss(student(samples), answers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 9:
            print(f"step {step + 1:3d}  loss {loss.item():.4f}")

    if rank == 0:
        print(f"process {os.getpid()}: {handle.ledger}")
    dist.barrier()  # leave together
    handle.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
