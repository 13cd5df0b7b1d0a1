"""One rank of `bench fused`: the same training steps by each way of averaging and updating."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Adam, Optimizer

from dlcp_client import cross_step, ddp, fused
from dlcp_lab.bench.meter import Usage, processes
from dlcp_lab.ranks.rank import Conductor
from dlcp_lab.ranks.tensors import join_gloo
from dlcp_lab.replay.pace import Pace
from dlcp_lab.replay.replay import replayed
from dlcp_lab.replay.shapes import FLOAT, Layer
from dlcp_lab.training.loop import parameters_digest

RATE: Final = 1e-4  # of learning
MARGIN: Final = 64 << 20  # bytes of the arena beyond four times the parameters


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model to call, its optimizer, what waits for the last weights, and what ends it."""

    model: nn.Module
    optimizer: Optimizer
    settle: Callable[[], None] = lambda: None
    close: Callable[[], None] = lambda: None
    state_bytes: Callable[[], int] | None = None  # None: those of the optimizer


def _gloo(net: nn.Module, _arena: int) -> Prepared:
    return Prepared(DistributedDataParallel(net), Adam(net.parameters(), RATE, fused=True))


def _zero(net: nn.Module, _arena: int) -> Prepared:
    optimizer = ZeroRedundancyOptimizer(
        net.parameters(), Adam, parameters_as_bucket_view=True, lr=RATE, fused=True
    )
    mine: Optimizer = optimizer.optim
    return Prepared(DistributedDataParallel(net), optimizer, state_bytes=lambda: _state_bytes(mine))


def _hook(net: nn.Module, arena: int) -> Prepared:
    model = DistributedDataParallel(net)
    handle = ddp.register(model, arena_bytes=arena)
    return Prepared(model, Adam(net.parameters(), RATE, fused=True), close=handle.close)


def _cross_step(net: nn.Module, arena: int) -> Prepared:
    model, optimizer = DistributedDataParallel(net), Adam(net.parameters(), RATE)
    handle = cross_step.register(model, optimizer, arena_bytes=arena)
    return Prepared(model, optimizer, handle.synchronize, handle.close)


def _fused(net: nn.Module, arena: int, *, eager: bool = False) -> Prepared:
    optimizer = Adam(net.parameters(), RATE)
    handle = fused.register(net, optimizer, eager=eager, arena_bytes=arena)
    return Prepared(net, optimizer, handle.synchronize, handle.close, lambda: handle.state_bytes)


WAYS: Final[dict[str, Callable[[nn.Module, int], Prepared]]] = {
    "gloo": _gloo,
    "zero": _zero,
    "hook": _hook,
    "cross-step": _cross_step,
    "fused": _fused,
    "eager": partial(_fused, eager=True),
}


def run(conductor: Conductor, arguments: dict[str, Any]) -> list[dict[str, list[dict[str, Any]]]]:
    """By size: way -> what `_block` measured, by block. The order of ways differs by block."""
    join_gloo(conductor)
    order = random.Random(arguments["seed"])  # equal on all ranks
    out = []
    try:
        for size, compute in arguments["cases"]:
            found: dict[str, list[dict[str, Any]]] = {way: [] for way in arguments["ways"]}
            for block in range(arguments["blocks"]):
                for way in order.sample(arguments["ways"], len(arguments["ways"])):
                    conductor.progress(f"{size} B, block {block + 1}: {way}")
                    found[way].append(_block(conductor, way, size, compute, arguments))
            out.append(found)
        return out
    finally:
        dist.destroy_process_group()


def _block(
    conductor: Conductor, way: str, size: int, compute: float, arguments: dict[str, Any]
) -> dict[str, Any]:
    """Some steps: seconds of each, CPU seconds per step of this rank and of the daemon that it
    reports, bytes of optimizer state, digest of the weights."""
    net = _network(size, arguments["layers"], compute, conductor.rank)
    prepared = WAYS[way](net, 4 * size + MARGIN)
    for _ in range(arguments["warmup"]):
        _step(prepared)
    prepared.settle()
    conductor.barrier(way)
    meter = Cpu(conductor, daemon=arguments["daemons"] > conductor.rank)
    begins = []
    for _ in range(arguments["repeat"]):
        begins.append(time.perf_counter())
        _step(prepared)
    prepared.settle()  # the last step ends with its weights
    begins.append(time.perf_counter())
    cpu = meter.seconds()
    state = prepared.state_bytes or (lambda: _state_bytes(prepared.optimizer))
    found = {
        "times": [after - before for before, after in pairwise(begins)],
        "cpu": cpu / arguments["repeat"],
        "state": state(),
        "digest": parameters_digest(net),
    }
    conductor.barrier("end")  # a rank that leaves fails unfinished operations of its peers
    prepared.close()
    return found


def _step(prepared: Prepared) -> None:
    """A training step. It ends where the next one begins, because work may cross over."""
    prepared.optimizer.zero_grad()
    prepared.model(torch.zeros(())).backward()
    prepared.optimizer.step()


def _network(size: int, layers: int, compute: float, rank: int) -> nn.Module:
    """Equal layers of `size` bytes in all, which wait for `compute` seconds per step in all."""
    count = size // FLOAT // layers
    one = Pace(compute / 3 / layers, 2 * compute / 3 / layers, 0.0)
    network = tuple(Layer(f"layer {n}", ((count,),)) for n in range(layers))
    return replayed(network, [one] * layers, rank)


def _state_bytes(optimizer: Optimizer) -> int:
    states = optimizer.state.values()
    return sum(
        t.nbytes
        for state in states
        for t in state.values()
        if isinstance(t, torch.Tensor) and t.dim()
    )


class Cpu:
    """CPU seconds of this process, and of a daemon's processes, since it was made."""

    def __init__(self, conductor: Conductor, *, daemon: bool) -> None:
        found = processes(conductor.daemon) if daemon else {}
        self._daemon = [pid for role, pid in found.items() if role != "trainer"]
        self._begin = self._now()

    def seconds(self) -> float:
        return self._now() - self._begin

    def _now(self) -> float:
        usages = [Usage.of(pid) for pid in self._daemon]
        return time.process_time() + sum(usage.user + usage.system for usage in usages)
