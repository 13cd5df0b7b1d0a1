"""Programs over a group whose devices have different backends."""

from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist

import dlcp_client
from dlcpd.contract.errors import BadOperation, BadTensor, DaemonUnavailable, SessionClosed

c10d: Final[Any] = dist.distributed_c10d


def answers(rank: int, size: int) -> dict[str, Any]:
    """What a group says of its devices, and how it ends."""
    world = dist.group.WORLD
    assert world is not None
    said: dict[str, Any] = {
        "backends": {
            device.type: type(world._get_backend(device)).__name__ for device in world._device_types
        },
        "config": dist.get_backend_config(),
        "split": refusal(lambda: world.split_group(list(range(size)))),
        "meta": refusal(lambda: dist.all_reduce(torch.ones(1, device="meta"))),
    }
    c10d._set_pg_timeout(timedelta(seconds=20))
    part = dist.new_group(list(range(size)))
    one = dist.new_group([0])
    both = dist.new_group(list(range(size)), backend="gloo")
    tensor = torch.ones(1)
    for group in (part, both):
        dist.all_reduce(tensor, group=group)
    if rank == 0:
        dist.all_reduce(tensor, group=one)
    said["sum"] = tensor.item()
    before = len(c10d._world.pg_names)
    dist.destroy_process_group(part)
    said["ended"] = before - len(c10d._world.pg_names)
    said["closed"] = refusal(lambda: part.allreduce([torch.ones(1)]).wait())
    dist.barrier()
    return said


def refusal(call: Any) -> str:
    try:
        call()
    except (BadOperation, BadTensor, SessionClosed) as exc:
        return str(exc)
    return ""


def only_cuda(rank: int, size: int) -> tuple[list[str], str]:
    """A group of CUDA alone, asked for a tensor of the CPU."""
    world = dist.group.WORLD
    assert world is not None
    types = [device.type for device in world._device_types]
    return types, refusal(lambda: dist.all_reduce(torch.ones(1)))


def unreachable(rank: int, size: int, backend: str, store: str) -> tuple[str, int]:
    """A group whose dlcpd cannot be reached: the error, and how many groups are left."""

    def refuse(*_: Any) -> Any:
        raise DaemonUnavailable("no daemon")

    dlcp_client.c10d.register(refuse)
    said, left = "", -1
    try:
        dist.init_process_group(backend, f"file://{store}", rank=rank, world_size=size)
    except DaemonUnavailable as exc:
        said, left = str(exc), len(c10d._world.pg_names)
    return said, left


def other_backend_fails(rank: int, size: int, store: str) -> tuple[str, int, float]:
    """A group whose other backend cannot be made: the error, how many groups are left, and a sum
    over the group that is made after it."""

    def broken(*_: Any) -> Any:
        raise OSError("no network")

    dist.Backend.register_backend("broken", broken, devices=["cuda"])
    dlcp_client.c10d.register()
    said, left = "", -1
    place: Any = {"rank": rank, "world_size": size}
    try:
        dist.init_process_group("cpu:dlcp,cuda:broken", f"file://{store}", **place)
    except OSError as exc:
        said, left = str(exc), len(c10d._world.pg_names)
    dist.init_process_group("dlcp", f"file://{store}-again", **place)
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    dist.destroy_process_group()
    return said, left, tensor.item()
