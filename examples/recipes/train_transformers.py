"""The Trainer of Hugging Face, with gradients through dlcpd, on two processes of this machine:

    pip install transformers accelerate peft
    torchrun --nproc-per-node 2 examples/recipes/train_transformers.py
    torchrun --nproc-per-node 2 examples/recipes/train_transformers.py \\
        --resume trained/checkpoint-12

A training needs only the callback: pass it the Trainer, and add it to the Trainer.
"""

import argparse
import hashlib
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.utils.data import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    set_seed,
)

import dlcp_client  # noqa: F401  # registers the backend "dlcp"
from dlcp_client import LossPolicy, bounded, ddp, exact

STEPS = 18
SAVE_EVERY = 12  # steps
TOKENS = 32  # of a sample
POLICIES = {"bounded": bounded(0.01), "exact": exact()}


class Dlcp(TrainerCallback):
    """Registers the model when the Trainer has wrapped it; its state is in the checkpoints."""

    def __init__(self, trainer: Trainer, policy: LossPolicy) -> None:
        self.trainer, self.policy = trainer, policy

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """`trainer.model_wrapped` is the DistributedDataParallel; a resumed step is not 0."""
        self.handle = ddp.register(self.trainer.model_wrapped, self.policy)
        if state.global_step:
            self.handle.load_state_dict(torch.load(self.file(args, state)))

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Every rank calls `state_dict`; the rank that saves the checkpoint saves the result."""
        left = self.handle.state_dict()
        if args.should_save:
            torch.save(left, self.file(args, state))

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Every rank runs this after its last step."""
        text = self.handle.summary(all_ranks=True)
        if state.is_world_process_zero:
            print(text)
        self.handle.close()

    @staticmethod
    def file(args: TrainingArguments, state: TrainerState) -> Path:
        """In the Trainer's checkpoint folder of this step."""
        return Path(args.output_dir) / f"checkpoint-{state.global_step}" / "dlcpd.pt"


class Rows(Dataset[dict[str, torch.Tensor]]):
    """Numbers in steps of 1 to 7, which a small model learns to continue."""

    def __len__(self) -> int:
        return 1024

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = (index + (1 + index % 7) * torch.arange(TOKENS)) % 256
        return {"input_ids": tokens, "labels": tokens}


def network(lora: bool) -> nn.Module:
    """A GPT-2 of 1.5 million weights; with LoRA, 15,360 additional ones are trained instead."""
    config = GPT2Config(
        vocab_size=256,
        n_positions=TOKENS,
        n_embd=240,
        n_layer=2,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config)
    if not lora:
        return model
    return get_peft_model(model, LoraConfig(r=8, target_modules=["c_attn"], fan_in_fan_out=True))


def main() -> None:
    """Train, from the start or from a checkpoint."""
    options = parsed()
    if options.mode == "backend":  # before TrainingArguments, which take the group that is there
        dist.init_process_group("dlcp")
    set_seed(1)
    args = TrainingArguments(
        options.output,
        max_steps=STEPS,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        save_steps=SAVE_EVERY,
        use_cpu=not torch.cuda.is_available(),
        report_to="none",
        disable_tqdm=True,
        ddp_find_unused_parameters=False,
    )
    trainer = Trainer(network(options.lora), args, train_dataset=Rows())
    if policy := POLICIES.get(options.mode):
        trainer.add_callback(Dlcp(trainer, policy))
    trainer.train(resume_from_checkpoint=options.resume)
    if trainer.is_world_process_zero():
        last = [one["train_loss"] for one in trainer.state.log_history if "train_loss" in one][-1]
        print(f"loss {last:.4f} after {trainer.state.global_step} steps")
        print(f"weights {digest(trainer.model)}")
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
    parser.add_argument("--output", default="trained", help="folder of checkpoints")
    parser.add_argument("--resume", metavar="CHECKPOINT", help="go on from it")
    parser.add_argument("--lora", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
