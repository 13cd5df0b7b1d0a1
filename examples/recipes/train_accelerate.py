"""Hugging Face Accelerate, with gradients through dlcpd, on two processes of this machine:

    pip install accelerate
    torchrun --nproc-per-node 2 examples/recipes/train_accelerate.py

`prepare` returns the DistributedDataParallel that `register` takes.
"""

import argparse
import hashlib

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import dlcp_client  # noqa: F401  # registers the backend "dlcp"
from dlcp_client import bounded, ddp, exact

STEPS = 30
BATCH = 32  # samples per rank and step
POLICIES = {"bounded": bounded(0.01), "exact": exact()}


def main() -> None:
    """Learn the outputs of a linear teacher."""
    mode = parsed().mode
    if mode == "backend":  # before the Accelerator, which takes the group that is there
        dist.init_process_group("dlcp")
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    torch.manual_seed(0)  # the same on every rank; Accelerate gives each its part
    samples = torch.randn(2 * BATCH * STEPS, 64)
    data = TensorDataset(samples, samples @ torch.randn(64, 512) / 8)
    model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 512))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, BATCH))
    handle = None
    if policy := POLICIES.get(mode):
        handle = ddp.register(model, policy)

    for inputs, answers in loader:
        loss = nn.functional.mse_loss(model(inputs), answers)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()

    if handle:
        text = handle.summary(all_ranks=True)  # on every rank
        accelerator.print(text)
        handle.close()
    accelerator.print(f"loss {loss.item():.4f} after {STEPS} steps")
    accelerator.print(f"weights {digest(accelerator.unwrap_model(model))}")
    accelerator.end_training()


def digest(model: nn.Module) -> str:
    """A hash of all bits of all weights."""
    weights = [weight.detach().cpu().numpy().tobytes() for weight in model.parameters()]
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
    return parser.parse_args()


if __name__ == "__main__":
    main()
