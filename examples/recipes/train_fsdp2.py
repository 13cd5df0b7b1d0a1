"""FSDP2 and its checkpoints (DCP) over dlcpd, on two processes of this machine:

torchrun --nproc-per-node 2 examples/recipes/train_fsdp2.py
torchrun --nproc-per-node 2 examples/recipes/train_fsdp2.py --resume
"""

import argparse
import hashlib
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import dlcp_client  # noqa: F401  # registers the backend "dlcp"
from dlcp_client import bounded, exact, fsdp

STEPS = 18
WIDTH = 384  # a block has 2.4 MB of gradients; from 1 MiB on they may be bounded
SAVE_AFTER = 12  # steps
POLICIES = {"bounded": bounded(0.01), "exact": exact()}


class Training:
    """A sharded model and its optimizer, which DCP saves and loads."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        blocks = [
            nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH))
            for _ in range(2)
        ]
        self.model = nn.Sequential(*blocks)
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for block in blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def state_dict(self) -> dict[str, Any]:
        """The state for DCP to save."""
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that DCP has loaded."""
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )

    def step(self, number: int) -> float:
        """Learn to reverse random samples of this step and rank."""
        drawn = torch.Generator().manual_seed(1000 * number + dist.get_rank())
        samples = torch.randn(16, WIDTH, generator=drawn)
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(samples), samples.flip(1))
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())


def main() -> None:
    """Train, from the start or from the checkpoint."""
    options = parsed()
    dist.init_process_group("gloo" if options.mode == "gloo" else "dlcp")
    training = Training()
    handle = None
    if policy := POLICIES.get(options.mode):
        handle = fsdp.register(training.model, policy)
    if options.resume:
        dcp.load({"training": training}, checkpoint_id=options.checkpoint)
    beside = dist.new_group()  # a checkpoint is written while the training goes on
    saving = None
    for number in range(SAVE_AFTER if options.resume else 0, STEPS):
        loss = training.step(number)
        if number + 1 == SAVE_AFTER:
            saving = dcp.async_save(
                {"training": training}, checkpoint_id=options.checkpoint, process_group=beside
            )
    if saving is not None:
        saving.result()
    text = handle.summary(all_ranks=True) if handle else ""  # on every rank
    found = digest(training.model)  # likewise
    if dist.get_rank() == 0:
        print(text, end="\n" if text else "")
        print(f"loss {loss:.4f} after {STEPS} steps")
        print(f"weights {found}")
    dist.destroy_process_group()


def digest(model: nn.Module) -> str:
    """A hash of all bits of all weights. Every rank calls it, because weights are gathered."""
    whole = [weight.full_tensor() for weight in model.parameters() if isinstance(weight, DTensor)]
    weights = [weight.detach().numpy().tobytes() for weight in whole]
    return hashlib.sha256(b"".join(weights)).hexdigest()


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "mode",
        nargs="?",
        default="bounded",
        help="or exact, backend, gloo",
        choices=("bounded", "exact", "backend", "gloo"),
    )
    parser.add_argument("--checkpoint", default="checkpoint", help="its folder")
    parser.add_argument("--resume", action="store_true", help="from the checkpoint")
    return parser.parse_args()


if __name__ == "__main__":
    main()
