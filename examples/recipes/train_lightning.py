"""Lightning, with gradients through dlcpd, on two processes of this machine:

    pip install pytorch-lightning
    torchrun --nproc-per-node 2 examples/recipes/train_lightning.py

A training with Lightning needs only the callback: pass it to the Trainer. Lightning's own
`DDPStrategy(ddp_comm_hook=...)` does nothing on the CPU.
"""

import argparse
import hashlib
import os
from typing import Any

import pytorch_lightning as pl
import torch
import torch.distributed as dist
from pytorch_lightning.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import dlcp_client  # noqa: F401  # registers the backend "dlcp"
from dlcp_client import LossPolicy, bounded, ddp, exact

STEPS = 30
BATCH = 32  # samples per rank and step
LOG_EVERY = 10  # steps
POLICIES = {"bounded": bounded(0.01), "exact": exact()}


class Dlcp(pl.Callback):
    """Registers the model once Lightning has wrapped it, and reports to Lightning's loggers."""

    def __init__(self, policy: LossPolicy) -> None:
        self.policy = policy
        self.handle: ddp.DDPRegistration

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """`trainer.model` is the DistributedDataParallel."""
        model: Any = trainer.model
        self.handle = ddp.register(model, self.policy)
        if trainer.logger is not None:
            self.handle.report_to(trainer.logger.log_metrics, every=LOG_EVERY)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Every rank runs this after its last step."""
        text = self.handle.summary(all_ranks=True)
        if trainer.is_global_zero:
            print(text)
        self.handle.close()


class Student(pl.LightningModule):
    """Learns the outputs of a linear teacher."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 512))
        self.last = 0.0

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        """One batch's loss."""
        samples, answers = batch
        loss = nn.functional.mse_loss(self.net(samples), answers)
        self.last = float(loss.detach())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def data() -> DataLoader[Any]:
    """The same on every rank; Lightning gives each its part."""
    torch.manual_seed(0)
    samples = torch.randn(2 * BATCH * STEPS, 64)
    return DataLoader(TensorDataset(samples, samples @ torch.randn(64, 512) / 8), batch_size=BATCH)


def main() -> None:
    """Train for some steps."""
    mode = parsed().mode
    pl.seed_everything(1, verbose=False)
    student = Student()
    callbacks: list[pl.Callback] = []
    if policy := POLICIES.get(mode):
        callbacks.append(Dlcp(policy))
    strategy = DDPStrategy(process_group_backend="gloo")
    if mode == "backend":
        strategy = DDPStrategy(process_group_backend="dlcp")
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        strategy=strategy,
        max_steps=STEPS,
        callbacks=callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(student, data())
    if trainer.is_global_zero:
        print(f"loss {student.last:.4f} after {trainer.global_step} steps")
        print(f"weights {digest(student)}")
    dist.destroy_process_group()


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
