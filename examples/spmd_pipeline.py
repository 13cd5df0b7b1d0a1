"""A pipeline on all ranks, written for one device: stages are a dimension, and a shift by one.

    torchrun --nproc-per-node 2 examples/spmd_pipeline.py
    torchrun --nproc-per-node 4 examples/spmd_pipeline.py --backend dlcp

Each rank has some of the stages. In each step it sends what its last stage holds to the next rank.
The network learns a random function. The lines that make it parallel are marked.
"""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from dlcp_client import spmd  # <- added

STAGES, PARTS, ROWS, WIDTH = 4, 8, 32, 32


class Pipeline(nn.Module):
    """All stages work at once, each on another part of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.randn(STAGES, WIDTH, WIDTH) / WIDTH**0.5)
        self.first: Tensor
        self.last: Tensor
        stage = torch.arange(STAGES).view(-1, 1, 1)
        self.register_buffer("first", stage == 0)
        self.register_buffer("last", stage == STAGES - 1)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """`x`: parts of the batch, rows, features."""
        held = x.new_zeros(STAGES, *x.shape[1:])
        found = []
        for step in range(PARTS + STAGES - 1):
            # Stage i gets what stage i - 1 held, the first one the next part of the batch.
            held = torch.where(self.first, x[min(step, PARTS - 1)], held.roll(1, 0))
            held = torch.tanh(torch.bmm(held, self.weights))
            if step >= STAGES - 1:
                found.append((held * self.last).sum(0))  # held[-1], without a gather
        return F.mse_loss(torch.stack(found), target)


def batch(step: int) -> tuple[Tensor, Tensor]:
    """Rows and a function of them, the same on every rank."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(WIDTH, WIDTH, generator=generator) / WIDTH**0.5
    generator.manual_seed(step + 1)
    x = torch.randn(PARTS, ROWS, WIDTH, generator=generator)
    return x, torch.tanh(x @ weight)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="gloo", help='"gloo" or "dlcp"')
    parser.add_argument("--steps", type=int, default=40)
    return parser.parse_args()


def main() -> None:
    """Divide, print the plan, and train."""
    options = arguments()
    dist.init_process_group(options.backend)
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = Pipeline()
    mesh = spmd.mesh(stage=world)  # <- added
    by_stage = ("stage", None, None)
    spmd.annotate(  # <- added
        model, mesh, {"weights": by_stage, "first": by_stage, "last": by_stage}
    )
    # A core does less work in a second than the default says, so that dividing it is worth more.
    costs = spmd.Costs(work_per_s=1e7)
    parallel = spmd.partition(model, mesh, example=batch(0), costs=costs)  # <- added
    if rank == 0:
        print(spmd.explain(spmd.plan(model, mesh, example=batch(0), costs=costs)))
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=0.01)
    for step in range(options.steps):
        optimizer.zero_grad()
        loss = parallel(*batch(step))  # every rank gives the whole batch
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step + 1:3d}  loss {loss.item():.4f}")
    dist.barrier()  # leave together
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
