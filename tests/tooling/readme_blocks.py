"""Execute the Python blocks of README.md, docs/interfaces.md and docs/fused.md on every rank of a
torchrun.

BLOCKS has for each block its names before, and a check after.

    torchrun --nproc-per-node 2 readme_blocks.py BLOCK...

Each block has a process of its own, forked when torch is imported, as each is another training.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch.nn.parallel import DistributedDataParallel

Space = dict[str, Any]
RANK: Final = int(os.environ["RANK"])


def on_all(tensor: torch.Tensor) -> list[torch.Tensor]:
    """What each rank has of it."""
    found = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(found, tensor)
    return found


def meet() -> None:
    """A process group in torchrun's store, under keys that no block before has used."""
    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    world = int(os.environ["WORLD_SIZE"])
    own = PrefixStore(f"block {os.environ['BLOCK']}", store)
    dist.init_process_group("gloo", store=own, rank=RANK, world_size=world)


def a_model() -> Space:
    """Of a training that runs under torchrun: a process group and a model."""
    meet()
    torch.manual_seed(0)
    return {
        "torch": torch,
        "DistributedDataParallel": DistributedDataParallel,
        "model": nn.Linear(8, 4),
    }


def a_ddp_model() -> Space:
    """The same, with the wrapper of DDP."""
    space = a_model()
    return space | {"model": DistributedDataParallel(space["model"])}


def gradients_are_averaged(space: Space) -> None:
    """Each rank has its own samples; all get the mean of what each of them computes."""
    model: nn.Module = space["model"]
    samples = torch.full((3, 8), float(RANK + 1))
    model(samples).sum().backward()
    [weight] = [found for found in model.parameters() if found.dim() == 2]
    assert weight.grad is not None
    assert torch.equal(weight.grad, torch.full((4, 8), 3 * 1.5))


def steps_keep_replicas_equal(space: Space) -> None:
    """Weights move, and are the same on all ranks."""
    model, optimizer = space["model"], space["optimizer"]
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.full((3, 8), float(RANK + 1))).square().sum().backward()
        optimizer.step()
    model.eval()(torch.zeros(1, 8))  # what crossed the step is here
    for parameter, old in zip(model.parameters(), before, strict=True):
        one, other = on_all(parameter.detach())
        assert torch.equal(one, other)
        assert not torch.equal(parameter, old)


def parts_are_updated(space: Space) -> None:
    """As with DDP; each rank has a part of the optimizer's state, and saves all of it."""
    steps_keep_replicas_equal(space)
    handle, model = space["handle"], space["model"]
    whole = 8 * sum(parameter.numel() for parameter in model.parameters())
    sizes = [int(one) for one in on_all(torch.tensor([handle.state_bytes]))]
    assert sum(sizes) == whole and max(sizes) < whole
    saved = space["optimizer"].state_dict()
    assert saved["state"][0]["exp_avg"].shape == model.weight.shape
    handle.close()


def parts_are_updated_by_a_program(space: Space) -> None:
    """Likewise, with one number of state for each of the weights."""
    steps_keep_replicas_equal(space)
    whole = 4 * sum(parameter.numel() for parameter in space["model"].parameters())
    sizes = [int(one) for one in on_all(torch.tensor([space["handle"].state_bytes]))]
    assert sum(sizes) == whole and max(sizes) < whole
    space["handle"].close()


def collectives_go_through_dlcpd(space: Space) -> None:
    """The group that there is now is of the backend."""
    del space
    assert dist.get_backend() == "dlcp"
    tensor = torch.full((5,), float(RANK))
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.full((5,), 1.0))


def the_server_takes_steps(space: Space) -> None:
    """A step changes the parameters, and all workers pull the same."""
    meet()  # only to compare
    space["handle"].pull()
    steps_keep_replicas_equal(space)
    space["handle"].close()


def the_average_is_everywhere(space: Space) -> None:
    """What the arena held, averaged."""
    one, other = on_all(space["gradient"])
    assert torch.equal(one, other)


# A block by what is in it, and in no other.
BLOCKS: Final[dict[str, tuple[Callable[[], Space], Callable[[Space], None]]]] = {
    # Also on a fake device: tests/client/device/test_training.py
    "model.to(device)": (lambda: a_model() | {"device": "cpu"}, gradients_are_averaged),
    "cross_step.register": (a_ddp_model, steps_keep_replicas_equal),
    "bounded, fused": (a_model, parts_are_updated),
    "fused.ProgramOptimizer": (a_model, parts_are_updated_by_a_program),
    'init_process_group("dlcp")': (lambda: {"torch": torch}, collectives_go_through_dlcpd),
    "ps.register": (
        lambda: {"torch": torch, "model": nn.Linear(8, 4)}, the_server_takes_steps,
    ),
    "dlcp_client.connect": (a_model, the_average_is_everywhere),
}  # fmt: skip


def execute(number: int, text: str) -> None:
    """One block, in this process."""
    os.environ["BLOCK"] = str(number)
    [(before, after)] = [found for part, found in BLOCKS.items() if part in text]
    space = before()
    exec(compile(text, f"block {number}", "exec"), space)  # noqa: S102  # it is ours
    after(space)
    if dist.is_initialized():  # or Gloo's threads may end the interpreter's exit with abort()
        dist.destroy_process_group()
    print(f"rank {RANK}: block {number} holds\n", end="", flush=True)


def forked(number: int, text: str) -> None:
    """One block, in a process of its own; this one ends with its exit code if that is not 0."""
    child = os.fork()
    if child == 0:
        execute(number, text)
        sys.exit()
    _, status = os.waitpid(child, 0)
    if status:
        sys.exit(f"rank {RANK}: block {number} failed:\n{text}")


if __name__ == "__main__":
    for index, file in enumerate(sys.argv[1:]):
        forked(index, Path(file).read_text())
