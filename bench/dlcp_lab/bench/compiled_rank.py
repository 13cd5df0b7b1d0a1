"""One rank of `bench fused --model-parallel --compiled`: a block of DTensor's tensor parallelism,
compiled by torch.compile, forward and backward."""

import hashlib
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch._inductor.select_algorithm import extern_kernels
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from dlcp_client import fused
from dlcp_lab.bench.fused_rank import Cpu
from dlcp_lab.ranks.rank import Conductor
from dlcp_lab.ranks.tensors import join_backend
from dlcp_lab.replay.shapes import FLOAT

COLUMNS: Final = 1024
HIDDEN: Final = 64  # of a rank: few, since the time of products is waited
WAYS: Final = {"gloo": False, "dlcp": False, "pieces": True}  # whether with `inductor_options`
PRODUCTS: Final = 6  # two forward, four backward, of equally many operations


class FeedForward(nn.Module):
    """A feed-forward block, added to its input."""

    def __init__(self, ranks: int) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.up = nn.Linear(COLUMNS, HIDDEN * ranks, bias=False)
        self.down = nn.Linear(HIDDEN * ranks, COLUMNS, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = self.down(F.relu(self.up(x)))
        return x + added


class CompiledBlock:
    """A block over one transport. Its call returns the result and the gradient of the input."""

    def __init__(self, mesh: DeviceMesh, rows: int, *, pieces: int | None) -> None:
        """`pieces`: as of `inductor_options`; None: without them."""
        block = FeedForward(mesh.size())
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
        options = None if pieces is None else fused.inductor_options(pieces)
        self._call: Callable[[Tensor], Tensor] = torch.compile(block, options=options)
        self._block = block
        self._x = torch.randn(rows, COLUMNS, generator=torch.Generator().manual_seed(2))
        self._grad = torch.randn(rows, COLUMNS, generator=torch.Generator().manual_seed(3))

    def __call__(self) -> tuple[Tensor, Tensor]:
        x = self._x.clone().requires_grad_()
        y: Any = self._call(x)
        y.backward(self._grad)
        self._block.zero_grad()
        assert x.grad is not None  # noqa: S101  # of a leaf
        return y.detach(), x.grad


@contextmanager
def paced(seconds: float) -> Iterator[None]:
    """Products of matrices also wait `seconds` per multiplication, in graphs of inductor and in
    operators of dlcpd."""

    def waiting(function: Any, first: int) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            a, b = args[first], args[first + 1]
            time.sleep(a.shape[0] * a.shape[1] * b.shape[1] * seconds)
            return function(*args, **kwargs)

        return call

    places: Any = (torch, extern_kernels)
    patches = [
        mock.patch.object(place, name, waiting(getattr(place, name), first))
        for place in places
        for name, first in (("mm", 0), ("addmm", 1))
        if hasattr(place, name)
    ]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()


def run(conductor: Conductor, arguments: dict[str, Any]) -> list[dict[str, list[dict[str, Any]]]]:
    """By case: way -> what `_block` measured, by block. The order of ways differs by block."""
    order = random.Random(arguments["seed"])  # equal on all ranks
    out = []
    with _joined(conductor) as meshes:
        for size, compute in arguments["cases"]:
            rows = size // FLOAT // COLUMNS
            torch._dynamo.reset()  # noqa: SLF001  # graphs of the last size; no public name
            ways = {
                way: CompiledBlock(
                    meshes[way], rows, pieces=arguments["pieces"] if overlaps else None
                )
                for way, overlaps in WAYS.items()
            }
            pace = compute / PRODUCTS / (rows * COLUMNS * HIDDEN)
            found: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
            for way, call in ways.items():
                conductor.progress(f"{size} B: compiling for {way}")
                call()
            for block in range(arguments["blocks"]):
                for way in order.sample(list(WAYS), len(WAYS)):
                    conductor.progress(f"{size} B, {compute:.3f} s, block {block + 1}: {way}")
                    found[way].append(_block(conductor, ways[way], pace, arguments["repeat"]))
            out.append(found)
    return out


def _block(conductor: Conductor, call: CompiledBlock, pace: float, repeat: int) -> dict[str, Any]:
    """Some calls: seconds of each, CPU seconds per call of this rank and its daemon, the digest of
    result and gradient, and the sum of their elements."""
    times = []
    with paced(pace):
        call()
        conductor.barrier("warm")
        meter = Cpu(conductor, daemon=True)
        for _ in range(repeat):
            begin = time.perf_counter()
            made = torch.cat(call())
            times.append(time.perf_counter() - begin)
    return {
        "times": times,
        "cpu": meter.seconds() / repeat,
        "digest": hashlib.blake2b(made.numpy().tobytes(), digest_size=8).hexdigest(),
        "sum": float(made.double().sum()),
        "size": float(made.double().norm()),
    }


@contextmanager
def _joined(conductor: Conductor) -> Iterator[dict[str, DeviceMesh]]:
    """A mesh for each way. Their names differ: torch.compile takes meshes of equal names and ranks
    for equal, and would use the graph of another one's group."""
    join_backend(conductor, "dlcp")
    try:
        gloo = dist.new_group(backend="gloo")
        groups: dict[str, Any] = {way: dist.group.WORLD for way in WAYS} | {"gloo": gloo}
        yield {
            way: DeviceMesh.from_group(group, "cpu", mesh_dim_names=(way,))
            for way, group in groups.items()
        }
    finally:
        dist.destroy_process_group()
