"""One rank of `bench cuda`, started by torchrun: the same steps over one transport after another.

torchrun --nnodes 2 ... -m dlcp_lab.bench.cuda_rank --models resnet50 --write rows.json
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dlcp_client import ddp
from dlcp_lab.replay.architectures import NETWORKS
from dlcp_lab.replay.shapes import Layer, Network
from dlcp_lab.report.statistic import percentile

WARMUP: Final = 5  # steps; DDP regroups its buckets, memory is locked, NCCL connects
TEXTS: Final = frozenset({"gpt2-small", "transformer"})  # a sample is a whole context
BUCKET: Final = 25 << 20  # bytes, as DDP's


class _Product(torch.autograd.Function):
    """The multiply-adds of a layer: one product of square matrices forward, two backward."""

    @staticmethod
    def forward(ctx: Any, signal: torch.Tensor, side: int, *parameters: torch.Tensor) -> Any:
        ctx.side, ctx.parameters = side, parameters
        _multiply(signal, side)
        return signal.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        for _ in range(2):
            _multiply(gradients[0], ctx.side)
        return gradients[0], None, *(torch.full_like(p, 1e-3) for p in ctx.parameters)


class Computing(nn.Module):
    """One layer: its parameters, and its arithmetic for `samples` samples."""

    def __init__(self, layer: Layer, samples: int) -> None:
        super().__init__()
        for number, shape in enumerate(layer.shapes):
            self.register_parameter(f"p{number}", nn.Parameter(torch.ones(shape)))
        self.side = round((layer.macs * samples) ** (1 / 3))

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        """The signal, unchanged."""
        out: torch.Tensor = _Product.apply(signal, self.side, *self._parameters.values())  # type: ignore[no-untyped-call]  # torch's own
        return out


def computing(network: Network, samples: int, device: torch.device) -> nn.Module:
    """A network to train; its input is any tensor of one element."""
    return nn.Sequential(*(Computing(layer, samples) for layer in network)).to(device)


@dataclass(frozen=True, slots=True)
class Run:
    """One measurement: network, samples per step, steps, device."""

    name: str
    network: Network
    samples: int
    steps: int
    device: torch.device


def measure(run: Run, transports: Sequence[str]) -> list[dict[str, Any]]:
    """A row per transport. Every rank calls it."""
    rows = []
    for transport in transports:
        with _model(run, transport) as (model, reduce):
            compute = _times(partial(_step, model, run.device, alone=True), run)
            whole = _times(partial(_step, model, run.device), run)
            rows.append(_row(run.name, transport, compute, whole, _times(reduce, run)))
    return rows


def _row(
    name: str, transport: str, compute: list[float], whole: list[float], alone: list[float]
) -> dict[str, Any]:
    own, step, network = (percentile(times, 0.5) for times in (compute, whole, alone))
    hidden = 1 - max(0.0, step - own) / network if network else 1.0
    return {
        "model": name,
        "transport": transport,
        "step": step,
        "p99": percentile(whole, 0.99),
        "compute": own,
        "alone": network,
        "hidden": max(0.0, hidden),
    }


@contextmanager
def _model(
    run: Run, transport: str
) -> Iterator[tuple[DistributedDataParallel, Callable[[], None]]]:
    """A model over a transport, and a call that only reduces as many bytes, in buckets."""
    group = dist.new_group(backend="nccl" if transport == "nccl" else "gloo")
    plain = computing(run.network, run.samples, run.device)
    model = DistributedDataParallel(plain, process_group=group)
    sizes = [p.numel() for p in model.parameters()]
    buckets = torch.split(torch.zeros(sum(sizes), device=run.device), BUCKET // 4)
    handle = ddp.register(model) if transport == "dlcp" else None

    def by_group() -> None:
        for work in [dist.all_reduce(one, group=group, async_op=True) for one in buckets]:
            work.wait()

    def by_session() -> None:
        session = handle.session if handle else None
        for work in [session.all_reduce(one, "avg") for one in buckets] if session else []:
            work.wait()

    try:
        yield model, by_session if handle else by_group
    finally:
        if handle:
            handle.close()


def _step(model: DistributedDataParallel, device: torch.device, *, alone: bool = False) -> None:
    model.zero_grad()
    with model.no_sync() if alone else nullcontext():
        model(torch.ones(1, device=device, requires_grad=True)).sum().backward()


def _times(call: Callable[[], None], run: Run) -> list[float]:
    """Seconds of each call, from a barrier until this rank's device is done."""
    times = []
    for _ in range(WARMUP + run.steps):
        dist.barrier()
        _synchronize(run.device)
        begun = time.perf_counter()
        call()
        _synchronize(run.device)
        times.append(time.perf_counter() - begun)
    return times[WARMUP:]


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _multiply(signal: torch.Tensor, side: int) -> None:
    square = signal.new_ones(side, side)
    torch.mm(square, square)


def main() -> None:
    """Run one rank on its GPU; rank 0 writes the rows."""
    parser = argparse.ArgumentParser(prog="cuda_rank")
    parser.add_argument("--models", default="resnet50,gpt2-small")
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--write", type=Path, required=True)
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("gloo")
    rows = []
    for name in options.models.split(","):
        samples = max(1, options.samples // 100) if name in TEXTS else options.samples
        run = Run(name, NETWORKS[name](), samples, options.steps, device)
        rows += measure(run, ("dlcp", "nccl", "gloo"))
    if dist.get_rank() == 0:
        options.write.write_text(json.dumps(rows))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
