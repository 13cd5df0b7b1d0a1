"""Train a small model with the optimizer's update inside the reduction, on two processes:

    torchrun --nproc-per-node 2 examples/train_fused.py

Each rank updates its part of the parameters and keeps that part of the optimizer's state. The lines
that make the difference are marked.
"""

# an example prints
import torch
import torch.distributed as dist
from torch import nn

from dlcp_client import fused  # <- added

STEPS = 60
BATCH = 64  # samples per rank and step
MOST = 1.0  # norm of the gradients


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
    teacher, student = network(32), network(1024)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
    handle = fused.register(student, optimizer)  # <- instead of DistributedDataParallel
    torch.manual_seed(1 + rank)  # each rank draws samples of its own
    for step in range(STEPS):
        inputs = torch.randn(BATCH, 64)
        with torch.no_grad():
            wanted = teacher(inputs)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(student(inputs), wanted)
        loss.backward()
        handle.clip_grad_norm_(MOST)  # <- instead of torch.nn.utils.clip_grad_norm_
        optimizer.step()
        if rank == 0 and step % 10 == 9:
            print(f"step {step + 1:3d}  loss {loss.item():.4f}")
    if rank == 0:
        parameters = sum(p.nbytes for p in student.parameters())
        print(
            f"optimizer state of rank 0: {handle.state_bytes / 1e6:.1f} MB, "
            f"parameters: {parameters / 1e6:.1f} MB"
        )
    handle.close()  # <- added: all ranks have the whole state again
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
