"""Measures the costs of a job: each mesh axis, with all its groups at work, and a core."""

import time
from collections.abc import Callable
from math import log10
from statistics import median
from typing import Final

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from .costs import Costs, Link
from .meshes import Mesh

ROUNDS: Final = 5  # of each call; the median counts
SMALLEST: Final = 64 << 10  # bytes of a sum; four times as many until it takes ENOUGH
LARGEST: Final = 16 << 20
ENOUGH: Final = 0.02  # seconds
WIDTH: Final = 256  # of the matrices whose product is timed
STEPS: Final = 5  # per factor of 10: measured again, costs mostly have the same plan


def measured_costs(mesh: Mesh, devices: DeviceMesh) -> Costs:
    """The same on every rank, by the slowest: each calls this. It takes a second on fast links, and
    a few on slow ones. Raises: what a collective of torch.distributed raises."""
    where = torch.device(devices.device_type)
    axes = {
        name: _link(devices.get_group(name), size, where)
        for name, size in mesh.sizes.items()
        if size > 1
    }
    a, b = (torch.ones(WIDTH, WIDTH, device=where) for _ in range(2))
    return Costs(work_per_s=_stepped(WIDTH**3 / _seconds(lambda: float((a @ b)[0, 0]))), axes=axes)


def _link(group: dist.ProcessGroup, size: int, where: torch.device) -> Link:
    number = torch.zeros(1, device=where)
    latency = _seconds(lambda: _sum(number, group))
    count = SMALLEST
    while True:
        tensor = torch.zeros(count // 4, device=where)
        taken = _seconds(lambda x=tensor: _sum(x, group))  # type: ignore[misc]  # of this round
        if taken > ENOUGH or count >= LARGEST:
            break
        count *= 4
    sent = 2 * count * (1 - 1 / size)
    return Link(_stepped(latency), _stepped(sent / max(taken - latency, taken / 2)))


def _sum(x: torch.Tensor, group: dist.ProcessGroup) -> None:
    dist.all_reduce(x, group=group)
    float(x[0])  # a device has it


def _seconds(call: Callable[[], object]) -> float:
    """The median time of a call on the slowest rank, equal on all."""
    call()
    taken = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begin)
    found: list[float] = [0.0] * dist.get_world_size()
    dist.all_gather_object(found, median(taken))
    return max(found)


def _stepped(value: float) -> float:
    return float(10 ** (round(STEPS * log10(value)) / STEPS))
