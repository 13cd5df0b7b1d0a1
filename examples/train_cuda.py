"""Train a small model whose gradients go from the GPU through dlcpd, on two processes:

    torchrun --nproc-per-node 2 examples/train_cuda.py

A rank uses the GPU with its number on the host. Without GPUs, all tensors are on a fake device,
whose copies are asynchronous like a GPU's: the first line says so. It is slow, but training and
dlcpd work in the same way. The two lines that make the difference are marked.
"""

# an example prints
import os
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dlcp_client import bounded, ddp  # <- added
from dlcp_lab.device.fake import FakeDevice

STEPS = 60
BATCH = 64  # samples per rank and step


def place(rank: int) -> tuple[torch.device, AbstractContextManager[object], str]:
    """This rank's device, a context for the training, and a description."""
    number = int(os.environ["LOCAL_RANK"])
    if torch.cuda.is_available():
        device = torch.device("cuda", number % torch.cuda.device_count())
        torch.cuda.set_device(device)
        return device, nullcontext(), torch.cuda.get_device_name()
    fake = FakeDevice(seed=rank, name=f"fake:{number}")
    return torch.device("cpu"), fake.holding_all(), "a fake device: this torch finds no GPU"


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


def train(rank: int, device: torch.device) -> None:
    """Train a wide network on the outputs of a narrow one."""
    torch.manual_seed(0)
    teacher, student = network(32).to(device), DistributedDataParallel(network(1024).to(device))
    handle = ddp.register(student, bounded(0.01))  # <- added
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)
    torch.manual_seed(1 + rank)  # from here on, every rank draws its own samples
    for step in range(STEPS):
        samples = torch.randn(BATCH, 64, device=device)
        with torch.no_grad():
            answers = teacher(samples)
        loss = nn.functional.mse_loss(student(samples), answers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 9:
            print(f"step {step + 1:3d}  loss {loss.item():.4f}")
    if rank == 0:
        print(handle.ledger)
    dist.barrier()  # leave together
    handle.close()


def main() -> None:
    """Run one rank."""
    dist.init_process_group("gloo")  # for DDP's own messages; NCCL would work as well
    rank = dist.get_rank()
    device, held, words = place(rank)
    if rank == 0:
        print(f"on {words}")
    with held:
        train(rank, device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
