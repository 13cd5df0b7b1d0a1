"""A DDP training that loses a worker, and is started again from its checkpoint by torchrun.

Argument: a folder. Rank 1 dies in the first start. The ranks' shares of a batch are equal, so the
weights in the end depend on the number of ranks by rounding only.
"""

import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from dlcp_client import ddp

STEPS, DIES_AT = 8, 3
BATCH = 8


def made() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    drawn = torch.Generator().manual_seed(step)
    inputs = torch.randn(BATCH, 16, generator=drawn)
    return inputs, inputs.sum(1, keepdim=True)


def one_step(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int, rank: int, size: int
) -> None:
    inputs, targets = (part[rank::size] for part in batch(step))
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def expected() -> dict[str, torch.Tensor]:
    """Of one process that nothing happens to."""
    model, optimizer = made()
    for step in range(STEPS):
        one_step(model, optimizer, step, 0, 1)
    return model.state_dict()


def main(folder: Path) -> None:
    """One rank."""
    torch.set_num_threads(1)
    dist.init_process_group("dlcp", timeout=timedelta(seconds=60))
    module, optimizer = made()
    checkpoint, begin = folder / "checkpoint", 0
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        begin = saved["step"]
    dist.barrier()
    model = DistributedDataParallel(module)
    handle = ddp.register(model, timeout=60.0)
    rank, size = dist.get_rank(), dist.get_world_size()
    for step in range(begin, STEPS):
        if step == DIES_AT and not begin and rank == 1:
            if os.environ.get("VICTIM") == "parent":  # the agent, which would start it again
                os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        one_step(model, optimizer, step, rank, size)
        if rank == 0:
            state = {"model": module.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state | {"step": step + 1}, folder / "new")
            (folder / "new").rename(checkpoint)
    for name, weight in expected().items():
        torch.testing.assert_close(module.state_dict()[name], weight)
    assert size == 1 or handle.ledger.operations, "the gradients went through dlcpd"
    handle.close()
    dist.destroy_process_group()
    (folder / f"rank{rank}.of{size}.from{begin}").touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
