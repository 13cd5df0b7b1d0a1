"""A transformer on all ranks, written for one device: tensor parallel by four annotations.

    torchrun --nproc-per-node 2 examples/spmd_gpt.py
    torchrun --nproc-per-node 4 examples/spmd_gpt.py --data 2 --backend dlcp

It learns to predict the next number of a sequence. The lines that make it parallel are marked.
"""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from dlcp_client import spmd  # <- added

WIDTH, HEADS, LAYERS, NUMBERS, LENGTH, BATCH = 64, 4, 2, 32, 16, 32


class Block(nn.Module):
    """Attention and a perceptron, each added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        q, k, v = (
            part(y).view(*y.shape[:2], HEADS, -1).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        )
        found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(found.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.second(x))))


class GPT(nn.Module):
    """The loss of the next number at every place."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers, self.places = nn.Embedding(NUMBERS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = nn.Linear(WIDTH, NUMBERS)

    def forward(self, numbers: Tensor, target: Tensor) -> Tensor:
        x = self.numbers(numbers) + self.places.weight
        return F.cross_entropy(self.head(self.blocks(x)).flatten(0, 1), target.flatten())


def batch(step: int) -> tuple[Tensor, Tensor]:
    """Sequences that grow by a step of their own; the same on every rank."""
    generator = torch.Generator().manual_seed(step)
    start, by = (torch.randint(1, n, (BATCH, 1), generator=generator) for n in (NUMBERS, 4))
    rows = (start + by * torch.arange(LENGTH + 1)) % NUMBERS
    return rows[:, :-1], rows[:, 1:]


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="gloo", help='"gloo" or "dlcp"')
    parser.add_argument("--data", type=int, default=1, help="groups of ranks that share a batch")
    parser.add_argument("--steps", type=int, default=40)
    return parser.parse_args()


def main() -> None:
    """Divide, print the plan, and train."""
    options = arguments()
    dist.init_process_group(options.backend)
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = GPT()
    mesh = spmd.mesh(data=options.data, model=world // options.data)  # <- added
    spmd.annotate(  # <- added
        model,
        mesh,
        {
            "*.[qkv].weight": ("model", None),
            "*.o.weight": (None, "model"),
            "*.up.weight": ("model", None),
            "*.down.weight": (None, "model"),
        },
    )
    inputs = [("data", None), ("data", None)]
    parallel = spmd.partition(model, mesh, example=batch(0), inputs=inputs)  # <- added
    if rank == 0:
        print(spmd.explain(spmd.plan(model, mesh, example=batch(0), inputs=inputs)))
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=3e-3)
    part = mesh.coordinates(rank)["data"]
    for step in range(options.steps):
        mine = [x.chunk(options.data)[part] for x in batch(step)]  # <- added
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
