"""Train a perceptron whose layers are divided among ranks, on two processes:

    torchrun --nproc-per-node 2 examples/train_tensor_parallel.py

Each rank has a part of every weight of the blocks. Between the layers of a block, sums travel in
pieces, each while others are computed. The lines that make the difference are marked.
"""

# an example prints
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from dlcp_client import fused  # <- added

STEPS, ROWS, WIDTH, HIDDEN = 60, 256, 64, 512
DROPOUT = 0.05


class Block(nn.Module):
    """A perceptron that is added to its input; this rank has a part of its hidden features."""

    def __init__(self) -> None:
        super().__init__()
        mine = HIDDEN // dist.get_world_size()
        up, down = torch.randn(HIDDEN, WIDTH) / WIDTH**0.5, torch.randn(WIDTH, HIDDEN) / HIDDEN**0.5
        rows = slice(dist.get_rank() * mine, (dist.get_rank() + 1) * mine)
        self.norm = nn.LayerNorm(WIDTH)  # the same on every rank
        self.up = nn.Parameter(up[rows].clone())  # <- a part of the whole weight
        self.down = nn.Parameter(down[:, rows].clone())  # <- likewise
        self.bias = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        group = dist.group.WORLD
        y = F.gelu(
            fused.column_parallel(self.norm(x), self.up, group=group)
        )  # <- instead of linear
        return fused.row_parallel(  # <- instead of linear, dropout and a sum
            y,
            self.down,
            self.bias,
            group=group,
            residual=x,
            dropout=DROPOUT if self.training else 0.0,
            pieces=4,  # <- these are small: by size, there would be one
        )


def main() -> None:
    """Train on the outputs of a fixed function; all ranks have the same samples."""
    dist.init_process_group("dlcp")  # <- instead of "gloo"
    torch.manual_seed(0)  # the same whole weights on every rank
    model = nn.Sequential(Block(), Block(), nn.Linear(WIDTH, 8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    target = torch.randn(WIDTH, 8)
    for step in range(STEPS):
        inputs = torch.randn(ROWS, WIDTH)
        loss = F.mse_loss(model(inputs), torch.tanh(inputs @ target))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and step % 10 == 9:
            print(f"step {step + 1:3d}  loss {loss.item():.4f}")
    shared = torch.cat([p.detach().flatten() for p in model[0].norm.parameters()])
    first = shared.clone()
    dist.broadcast(first, 0)
    print(f"rank {dist.get_rank()}: equal norms: {torch.equal(shared, first)}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
