"""A convolutional network whose images are divided by their width among the ranks.

    torchrun --nproc-per-node 2 examples/spmd_spatial.py
    torchrun --nproc-per-node 3 examples/spmd_spatial.py --backend dlcp

A rank holds a part of each image and of each activation; only columns at the edges are sent. The
network learns to tell horizontal from vertical stripes. The lines that make it parallel are marked.
"""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from dlcp_client import spmd  # <- added

BATCH, HEIGHT, WIDTH = 8, 64, 130


class Stripes(nn.Module):
    """Convolutions with a stride and a pool, batch norm, and the mean of the image."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 8, 5, padding=2), nn.Conv2d(8, 8, 3, 2, padding=1)
        self.norm, self.head = nn.BatchNorm2d(8), nn.Linear(8, 2)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 3, 1, 1)
        return F.cross_entropy(self.head(F.relu(self.second(x)).mean((2, 3))), target)


def batch(step: int) -> tuple[Tensor, Tensor]:
    """Noisy stripes, the same on every rank."""
    generator = torch.Generator().manual_seed(step)
    target = torch.randint(0, 2, (BATCH,), generator=generator)
    rows, columns = torch.arange(HEIGHT).view(-1, 1), torch.arange(WIDTH)
    stripes = torch.stack([(rows % 4 < 2).expand(-1, WIDTH), (columns % 4 < 2).expand(HEIGHT, -1)])
    noise = torch.randn(BATCH, HEIGHT, WIDTH, generator=generator)
    return (stripes[target] + noise / 2).unsqueeze(1), target


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="gloo", help='"gloo" or "dlcp"')
    parser.add_argument("--steps", type=int, default=20)
    return parser.parse_args()


def main() -> None:
    """Divide, print the plan, and train."""
    options = arguments()
    dist.init_process_group(options.backend)
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = Stripes()
    mesh = spmd.mesh(space=world)  # <- added
    inputs = [(None, None, None, "space"), None]  # <- added
    # A core does less work in a second than the default says, so that dividing it is worth more.
    costs = spmd.Costs(work_per_s=1e9)
    parallel = spmd.partition(model, mesh, example=batch(0), inputs=inputs, costs=costs)  # <- added
    if rank == 0:
        print(spmd.explain(spmd.plan(model, mesh, example=batch(0), inputs=inputs, costs=costs)))
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=0.02)
    for step in range(options.steps):
        image, target = batch(step)
        mine = image.chunk(world, 3)[rank]  # <- added
        optimizer.zero_grad()
        loss = parallel(mine, target)
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step + 1:3d}  loss {loss.item():.4f}")
    dist.barrier()  # leave together
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
