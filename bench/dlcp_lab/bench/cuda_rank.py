"""One rank of `bench cuda`, started by torchrun: the transports take turns, a step of each.

torchrun --nnodes 2 ... -m dlcp_lab.bench.cuda_rank --models resnet50 --write rows.json
"""

import argparse
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dlcp_client import ddp
from dlcp_lab.bench.cuda_turns import FIGURES, MeasuredTransport, attempt, take_turns
from dlcp_lab.replay.architectures import NETWORKS
from dlcp_lab.replay.shapes import Layer, Network
from dlcp_lab.report.statistic import percentile

WARMUP: Final = 5  # rounds; DDP regroups its buckets, memory is locked, NCCL connects
TEXTS: Final = frozenset({"gpt2-small", "transformer"})  # a sample is a whole context
BUCKET: Final = 25 << 20  # bytes, as DDP's
COMPUTE, STEP, ALONE = "compute", "step", "alone"  # a backward pass, a step, its reduction


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
    """A row per transport. Every rank calls it.

    The models of all transports exist at once. The row of a transport that fails on a rank, at
    the start or in a step, has `reason`; the others go on.
    """
    lanes = [MeasuredTransport(transport) for transport in transports]
    with ExitStack() as models:
        for lane in lanes:
            _prepare(lane, run, models)
        take_turns(lanes, _agree, warmup=WARMUP, rounds=run.steps)
    return [_row(run.name, lane) for lane in lanes]


def _prepare(lane: MeasuredTransport, run: Run, models: ExitStack) -> None:
    """Make the model of a lane, and its calls. On failure the lane has a `reason`."""
    if lane.transport == "nccl":
        lane.reason = nccl_refuses(_places(run.device))
    if lane.reason:
        return
    made = attempt(lane, lambda: models.enter_context(_model(run, lane.transport)), _agree)
    if made is None:
        return
    model, reduce = made
    calls: dict[str, Callable[[], None]] = {
        COMPUTE: partial(_step, model, run.device, alone=True),
        STEP: partial(_step, model, run.device),
        ALONE: reduce,
    }
    lane.calls = {name: partial(_seconds, call, run.device) for name, call in calls.items()}


def nccl_refuses(places: Sequence[str]) -> str:
    """Why NCCL cannot serve these ranks; "" if it can. `places`: GPU by rank, "" for no GPU."""
    if not dist.is_nccl_available():
        return f"torch {torch.__version__} has no NCCL"
    if "" in places:
        return f"NCCL needs a GPU, and rank {places.index('')} has none"
    by_place: dict[str, list[int]] = {}
    for rank, place in enumerate(places):
        by_place.setdefault(place, []).append(rank)
    for place, ranks in by_place.items():
        if len(ranks) > 1:
            return f"NCCL refuses two ranks on one GPU: ranks {ranks[0]} and {ranks[1]} on {place}"
    return ""


def _places(device: torch.device) -> list[str]:
    """The GPU of each rank by host and PCI address, as NCCL tells them apart; "" for no GPU."""
    place = ""
    if device.type == "cuda":
        found: Any = torch.cuda.get_device_properties(device)  # torch's types lack these fields
        place = (
            f"{socket.gethostname()} "
            f"{found.pci_domain_id:04x}:{found.pci_bus_id:02x}:{found.pci_device_id:02x}"
        )
    return _of_all(place)


def _agree(reason: str) -> str:
    """The reason of the lowest rank that gives one, with the rank; "" if none does."""
    reasons = enumerate(_of_all(reason))
    return next((f"rank {rank}: {reason}" for rank, reason in reasons if reason), "")


def _of_all(text: str) -> list[str]:
    texts = [""] * dist.get_world_size()
    dist.all_gather_object(texts, text)
    return texts


def _row(name: str, lane: MeasuredTransport) -> dict[str, Any]:
    """Medians of rank 0, seconds; None and a `reason` for a transport that was not measured."""
    row: dict[str, Any] = dict.fromkeys(FIGURES)
    if not lane.reason:
        own, step, network = (percentile(lane.times[what], 0.5) for what in (COMPUTE, STEP, ALONE))
        hidden = 1 - max(0.0, step - own) / network if network else 1.0
        figures = (step, percentile(lane.times[STEP], 0.99), own, network, max(0.0, hidden))
        row = dict(zip(FIGURES, figures, strict=True))
    return {"model": name, "transport": lane.transport, **row, "reason": lane.reason or None}


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


def _seconds(call: Callable[[], None], device: torch.device) -> float:
    """Seconds of a call, from a barrier until this rank's device is done."""
    dist.barrier()
    _synchronize(device)
    begun = time.perf_counter()
    call()
    _synchronize(device)
    return time.perf_counter() - begun


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
