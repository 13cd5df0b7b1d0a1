"""A training that torchrun starts again from its checkpoint when a rank has died:

torchrun --nproc-per-node 2 --max-restarts 3 examples/recipes/train_restarts.py --die-at 8
"""

import argparse
import hashlib
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import dlcp_client  # noqa: F401  # registers the backend "dlcp"
from dlcp_client import bounded, ddp, exact

STEPS = 18
SAVE_EVERY = 6  # steps
POLICIES = {"bounded": bounded(0.01), "exact": exact()}
DIED = 9  # the exit status of the rank that dies


def main() -> None:
    """Train from the last checkpoint, if there is one."""
    options = parsed()
    # Not Gloo: with torch 2.13 init_process_group("gloo") was seen to hang in the second start.
    dist.init_process_group("gloo" if options.mode == "gloo" else "dlcp")
    torch.manual_seed(1)
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 512))
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    handle = None
    if policy := POLICIES.get(options.mode):
        handle = ddp.register(model, policy)
    done = 0
    if options.checkpoint.exists():
        state = torch.load(options.checkpoint)
        done = state["done"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        if handle:
            handle.load_state_dict(state["dlcpd"])  # the residuals

    while done < STEPS:
        if done == options.die_at and first_start() and dist.get_rank() == 1:
            os._exit(DIED)
        drawn = torch.Generator().manual_seed(1000 * done + dist.get_rank())
        samples = torch.randn(32, 64, generator=drawn)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(samples), samples.repeat(1, 8))
        loss.backward()
        optimizer.step()
        done += 1
        if done % SAVE_EVERY == 0:
            state = {
                "done": done,
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "dlcpd": handle.state_dict() if handle else None,  # on every rank
            }
            if dist.get_rank() == 0:
                save(state, options.checkpoint)

    text = handle.summary(all_ranks=True) if handle else ""  # on every rank
    if dist.get_rank() == 0:
        print(text, end="\n" if text else "")
        print(f"loss {loss.item():.4f} after {done} steps")
        print(f"weights {digest(model)}")
    if handle:
        handle.close()
    dist.destroy_process_group()


def first_start() -> bool:
    """Whether torchrun has not started this job again."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"


def save(state: dict[str, object], file: Path) -> None:
    """Write the file atomically."""
    whole = file.with_suffix(".new")
    torch.save(state, whole)
    whole.replace(file)


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
        help="or exact, gloo",
        choices=("bounded", "exact", "gloo"),
    )
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.pt"))
    parser.add_argument("--die-at", type=int, metavar="STEP", help="where rank 1 ends, once")
    return parser.parse_args()


if __name__ == "__main__":
    main()
