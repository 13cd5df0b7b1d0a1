"""Train a small model whose gradients cross the step: a layer of the next forward pass waits
only for its own. On two processes of this machine:

    torchrun --nproc-per-node 2 examples/train_cross_step.py

The two lines that make the difference to plain DistributedDataParallel are marked.
"""

# an example prints
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dlcp_client import bounded, cross_step  # <- added

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
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)
    handle = cross_step.register(student, optimizer, bounded(0.01))  # <- added
    torch.manual_seed(1 + rank)  # from here on, every rank draws its own samples

    for step in range(STEPS):
        samples = torch.randn(BATCH, 64)
        with torch.no_grad():
            answers = teacher(samples)
        optimizer.zero_grad()  # before the forward pass, where it saves a copy of the gradients
        loss = nn.functional.mse_loss(student(samples), answers)
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
