"""Hugging Face Accelerate, with gradients through dlcpd, on two processes of this machine:

    pip install accelerate
    torchrun --nproc-per-node 2 examples/train_accelerate.py

`accelerate launch` works as well. What `prepare` returns is the DistributedDataParallel that
`register` takes; the lines that make the difference are marked.
"""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dlcp_client import bounded, ddp  # <- added

STEPS = 30
BATCH = 32  # samples per rank and step


def main() -> None:
    """Learn what a linear teacher says."""
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)  # the same on every rank; Accelerate gives each its part
    samples = torch.randn(2 * BATCH * STEPS, 64)
    data = TensorDataset(samples, samples @ torch.randn(64, 512) / 8)
    model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 512))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, BATCH))
    handle = ddp.register(model, bounded(0.01))  # <- added

    for inputs, answers in loader:
        loss = nn.functional.mse_loss(model(inputs), answers)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()

    text = handle.summary(all_ranks=True)  # <- added
    accelerator.print(text)
    accelerator.print(f"loss {loss.item():.4f} after {handle.step} steps")
    accelerator.wait_for_everyone()
    handle.close()  # <- added
    accelerator.end_training()


if __name__ == "__main__":
    main()
