"""Lightning, with gradients through dlcpd, on two processes of this machine:

    pip install pytorch-lightning
    torchrun --nproc-per-node 2 examples/train_lightning.py

The callback is all that a training of Lightning needs; pass it to its Trainer. Lightning's own
`DDPStrategy(ddp_comm_hook=...)` does nothing on the CPU.
"""

import os
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dlcp_client import LossPolicy, bounded, ddp

STEPS = 30
BATCH = 32  # samples per rank and step
LOG_EVERY = 10  # steps


class Dlcp(pl.Callback):
    """Registers the model when Lightning has wrapped it, and lets Lightning's loggers know."""

    def __init__(self, policy: LossPolicy) -> None:
        self.policy = policy
        self.handle: ddp.Registration

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """`trainer.model` is the DistributedDataParallel."""
        model: Any = trainer.model
        self.handle = ddp.register(model, self.policy)
        if trainer.logger is not None:
            self.handle.report_to(trainer.logger.log_metrics, every=LOG_EVERY)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Every rank comes here after its last step."""
        text = self.handle.summary(all_ranks=True)
        if trainer.is_global_zero:
            print(text)
        self.handle.close()


class Student(pl.LightningModule):
    """Learns what a linear teacher says."""

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
    pl.seed_everything(1, verbose=False)
    student, callback = Student(), Dlcp(bounded(0.01))
    trainer = pl.Trainer(
        accelerator="cpu", devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        strategy=DDPStrategy(process_group_backend="gloo"), max_steps=STEPS, callbacks=[callback],
        logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(student, data())
    if trainer.is_global_zero:
        print(f"loss {student.last:.4f} after {trainer.global_step} steps")


if __name__ == "__main__":
    main()
