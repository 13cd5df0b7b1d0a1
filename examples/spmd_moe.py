"""A mixture of experts on all ranks, written for one device: each rank has some of the experts.

    torchrun --nproc-per-node 2 examples/spmd_moe.py
    torchrun --nproc-per-node 4 examples/spmd_moe.py --backend dlcp

Tokens go to their expert and come back by all-to-alls. The network learns four maps, one for each
kind of token. The lines that make it parallel are marked.
"""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from dlcp_client import spmd  # <- added

EXPERTS, WIDTH, HIDDEN, GROUPS, TOKENS = 4, 16, 256, 8, 32
BY_EXPERT = ("expert", None, None, None)  # <- added


class Experts(nn.Module):
    """Each token goes to its best expert. Dispatch masks have a group, a token, an expert, and a
    place of the expert: a dimension each."""

    def __init__(self, mesh: spmd.Mesh) -> None:
        super().__init__()
        self.mesh = mesh
        self.places: Tensor  # of an expert, per group: enough for every token
        self.register_buffer("places", torch.arange(TOKENS))
        self.enter, self.gate = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, EXPERTS)
        self.up = nn.Parameter(torch.randn(EXPERTS, WIDTH, HIDDEN) / WIDTH**0.5)
        self.down = nn.Parameter(torch.randn(EXPERTS, HIDDEN, WIDTH) / HIDDEN**0.5)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        x = self.enter(x)
        chances = torch.softmax(self.gate(x), -1)
        best = F.one_hot(chances.argmax(-1), EXPERTS).to(x.dtype)
        place = torch.cumsum(best, 1) - 1
        send = best.unsqueeze(-1) * (place.unsqueeze(-1) == self.places)
        given = torch.einsum("gtep,gtd->egpd", send, x)
        given = spmd.mesh_split(given, self.mesh, BY_EXPERT)  # <- added
        hidden = torch.einsum("egpd,edh->egph", given, self.up).relu()
        made = torch.einsum("egph,ehd->egpd", hidden, self.down)
        made = spmd.mesh_split(made, self.mesh, BY_EXPERT)  # <- added
        y = torch.einsum("gtep,egpd->gtd", send * chances.unsqueeze(-1), made)
        return F.mse_loss(y, target)


def batch(step: int) -> tuple[Tensor, Tensor]:
    """Tokens of four kinds, each with a map of its own; the same on every rank."""
    generator = torch.Generator().manual_seed(0)
    centers = 3 * torch.randn(EXPERTS, WIDTH, generator=generator)
    maps = torch.randn(EXPERTS, WIDTH, WIDTH, generator=generator) / WIDTH**0.5
    generator.manual_seed(step + 1)
    kind = torch.randint(0, EXPERTS, (GROUPS, TOKENS), generator=generator)
    x = centers[kind] + torch.randn(GROUPS, TOKENS, WIDTH, generator=generator)
    return x, torch.einsum("gtd,gtde->gte", x, maps[kind])


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
    mesh = spmd.mesh(expert=world)  # <- added
    model = Experts(mesh)
    rows = ("expert", None, None)
    spmd.annotate(model, mesh, {"up": rows, "down": rows})  # <- added
    inputs = [rows, rows]  # <- added: each rank has some of the groups
    # A core does less work in a second than the default says, so that dividing it is worth more.
    costs = spmd.Costs(work_per_s=1e8)
    parallel = spmd.partition(model, mesh, example=batch(0), inputs=inputs, costs=costs)  # <- added
    if rank == 0:
        print(spmd.explain(spmd.plan(model, mesh, example=batch(0), inputs=inputs, costs=costs)))
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=5e-3)
    for step in range(options.steps):
        mine = [x.chunk(world)[rank] for x in batch(step)]  # <- added
        optimizer.zero_grad()
        loss = parallel(*mine)
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step + 1:3d}  loss {loss.item():.4f}")
    dist.barrier()  # leave together
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
