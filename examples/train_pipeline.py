"""Train a perceptron in two stages of a pipeline, each divided among two ranks, on four processes:

    torchrun --nproc-per-node 4 examples/train_pipeline.py

Each stage has some of the blocks, and each rank of a stage a part of their weights. Between stages
each rank sends its part of the rows. The lines that make the difference are marked.
"""

# an example prints
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

from dlcp_client import fused  # <- added

STAGES, STEPS, ROWS, WIDTH, HIDDEN = 2, 60, 128, 64, 512
MICRO_BATCHES = 2


class Block(nn.Module):
    """A perceptron that is added to its input; this rank has a part of its hidden features."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.group = group  # of the stage
        mine = HIDDEN // group.size()
        up, down = torch.randn(HIDDEN, WIDTH) / WIDTH**0.5, torch.randn(WIDTH, HIDDEN) / HIDDEN**0.5
        rows = slice(group.rank() * mine, (group.rank() + 1) * mine)
        self.up = nn.Parameter(up[rows].clone())  # <- a part of the whole weight
        self.down = nn.Parameter(down[:, rows].clone())  # <- likewise
        self.bias = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x: Tensor, *, gather: bool = True) -> Tensor:
        """With `gather=False` this rank's rows of the result."""
        y = F.gelu(fused.column_parallel(x, self.up, group=self.group))
        residual = x if gather else x.chunk(self.group.size())[self.group.rank()]
        return fused.row_parallel(  # <- instead of linear and a sum
            y, self.down, self.bias, group=self.group, residual=residual, gather=gather
        )


def main() -> None:
    """Train on the outputs of a fixed function; all ranks draw the same samples."""
    dist.init_process_group("dlcp")  # <- instead of "gloo"
    tensor_parallel = dist.get_world_size() // STAGES
    mesh = init_device_mesh("cpu", (STAGES, tensor_parallel), mesh_dim_names=("stage", "layer"))
    stages, group = mesh.get_group("stage"), mesh.get_group("layer")
    first, last = stages.rank() == 0, stages.rank() == STAGES - 1
    torch.manual_seed(0)  # the same whole weights on every rank
    whole = nn.ModuleList([Block(group), Block(group), nn.Linear(WIDTH, 8)])
    mine = whole[1:] if last else whole[:1]  # <- the layers of this stage
    optimizer = torch.optim.AdamW(mine.parameters(), lr=3e-3)
    target = torch.randn(WIDTH, 8)
    for step in range(STEPS):
        inputs = torch.randn(MICRO_BATCHES, ROWS, WIDTH)
        losses = []
        for x in inputs:
            held = x if first else fused.receive(stages=stages, group=group)  # <- added
            if not last:
                part = mine[0](held, gather=False)
                losses.append(fused.send_next(part, stages=stages))  # <- instead of a loss
                continue
            y = mine[1](mine[0](held))
            losses.append(F.mse_loss(y, torch.tanh(x @ target)) / MICRO_BATCHES)
        optimizer.zero_grad()
        for loss in losses:
            loss.backward()
        optimizer.step()
        if last and group.rank() == 0 and step % 10 == 9:
            print(f"step {step + 1:3d}  loss {torch.stack(losses).sum().item():.4f}")
    shared = mine[0].bias.detach()
    found = shared.clone()
    dist.broadcast(found, stages.rank() * tensor_parallel, group)
    print(f"rank {dist.get_rank()}: equal biases: {torch.equal(shared, found)}")
    dist.barrier()  # leave together
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
