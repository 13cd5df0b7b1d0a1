"""One rank of a training with FSDP2 over the backend "dlcp": the time of each step, and how far the
weights are from those of the same training in one process."""

import time
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import dlcp_client  # noqa: F401  # registers "dlcp"
from dlcp_lab.ranks.rank import Conductor

RATE: Final = 0.05  # of SGD
ROWS: Final = 2  # of each rank's batch


def run(conductor: Conductor, arguments: dict[str, Any]) -> dict[str, Any]:
    """Seconds of each step; `error`: of the weights, relative to the largest; their digest."""
    torch.set_num_threads(1)
    rank, world, width = conductor.rank, conductor.world_size, arguments["width"]
    dist.init_process_group(
        "dlcp", init_method=f"file://{conductor.store}", rank=rank, world_size=world
    )
    try:
        net = _model(width, arguments["layers"])
        mesh = init_device_mesh("cpu", (world,))
        for layer in net:
            fully_shard(layer, mesh=mesh, reshard_after_forward=False)
        fully_shard(net, mesh=mesh, reshard_after_forward=False)
        sgd, times = torch.optim.SGD(net.parameters(), lr=RATE), list[float]()
        for step in range(arguments["steps"]):
            begun = conductor.barrier("step")
            _step(net, sgd, [rank], step)
            times.append(time.monotonic() - begun)
        weights = [_whole(each) for each in net.parameters()]
        conductor.barrier("end")
    finally:
        dist.destroy_process_group()
    digest = blake2b(b"".join(each.numpy().tobytes() for each in weights), digest_size=8)
    error = _error(weights, arguments, world) if not rank else 0.0
    return {"times": times, "error": error, "digest": digest.hexdigest()}


def _model(width: int, layers: int) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers)))


def _step(net: nn.Module, sgd: torch.optim.Optimizer, ranks: Iterable[int], step: int) -> None:
    """A step on the batches of `ranks`; FSDP2 averages over its own."""
    batches = []
    for rank in ranks:
        generator = torch.Generator().manual_seed(1000 * step + rank)
        batches.append(torch.randn(ROWS, next(net.parameters()).shape[-1], generator=generator))
    sgd.zero_grad()
    net(torch.cat(batches)).square().mean().backward()
    sgd.step()


def _whole(parameter: torch.Tensor) -> torch.Tensor:
    value = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
    return value.detach()


def _error(weights: list[torch.Tensor], arguments: dict[str, Any], world: int) -> float:
    net = _model(arguments["width"], arguments["layers"])
    sgd = torch.optim.SGD(net.parameters(), lr=RATE)
    for step in range(arguments["steps"]):
        _step(net, sgd, range(world), step)
    pairs = zip(weights, net.parameters(), strict=True)
    return max(float(((a - b).abs().max() / b.abs().max()).detach()) for a, b in pairs)
