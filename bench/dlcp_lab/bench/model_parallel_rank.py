"""One rank of `bench fused --model-parallel`: one layer by each way of summing its products."""

import hashlib
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from dlcp_client import connect, fused
from dlcp_client.fused.model_parallel.dropping import Dropout
from dlcp_client.group import Group
from dlcp_lab.bench.fused_rank import MARGIN, Cpu
from dlcp_lab.ranks.rank import Conductor
from dlcp_lab.ranks.tensors import join_gloo
from dlcp_lab.replay.shapes import FLOAT

COLUMNS: Final = 1024
INNER: Final = 64  # few, since the product's time is waited
P: Final = 0.1  # of dropout
SEED: Final = 1


class PacedProducts(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch
    """Each product of matrices also waits, in proportion to its rows."""

    def __init__(self, seconds_per_row: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch
        self._seconds = seconds_per_row

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket is torch.ops.aten.mm:
            time.sleep(args[0].shape[0] * self._seconds)
        return func(*args, **(kwargs or {}))


class DividedLayer:
    """dropout(sum of x @ weight.T + bias) + residual, of `size` bytes, over both transports."""

    def __init__(self, size: int, group: Group[Tensor], pieces: int) -> None:
        rows = size // FLOAT // COLUMNS
        own = torch.Generator().manual_seed(100 + group.rank)
        same = torch.Generator().manual_seed(1)
        self._x = torch.randn(rows, INNER, generator=own)
        self._weight = torch.randn(COLUMNS, INNER, generator=own)
        self._bias = torch.randn(COLUMNS, generator=same)
        self._residual = torch.randn(rows, COLUMNS, generator=same)
        self._group, self._pieces = group, pieces
        self.rows: Final = rows

    def over_gloo(self) -> Tensor:
        y = self._x @ self._weight.t()
        dist.all_reduce(y)
        return self._epilogue(y)

    def over_dlcp(self) -> Tensor:
        y = self._x @ self._weight.t()
        self._group.all_reduce(y).wait()
        return self._epilogue(y)

    def in_pieces(self) -> Tensor:
        return fused.row_parallel(
            self._x,
            self._weight,
            self._bias,
            group=self._group,
            residual=self._residual,
            dropout=P,
            seed=SEED,
            pieces=self._pieces,
        )

    def _epilogue(self, y: Tensor) -> Tensor:
        drop = Dropout(P, SEED, COLUMNS)
        return drop.apply(y.add_(self._bias), drop.kept(0, self.rows)).add_(self._residual)


WAYS: Final[dict[str, Callable[[DividedLayer], Tensor]]] = {
    "gloo": DividedLayer.over_gloo,
    "dlcp": DividedLayer.over_dlcp,
    "pieces": DividedLayer.in_pieces,
}


def run(conductor: Conductor, arguments: dict[str, Any]) -> list[dict[str, list[dict[str, Any]]]]:
    """By case: way -> what `_block` measured, by block. The order of ways differs by block."""
    order = random.Random(arguments["seed"])  # equal on all ranks
    out = []
    with _joined(conductor, arguments) as group, torch.no_grad():
        for size, compute in arguments["cases"]:
            layer = DividedLayer(size, group, arguments["pieces"])
            found: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
            for block in range(arguments["blocks"]):
                for way in order.sample(list(WAYS), len(WAYS)):
                    conductor.progress(f"{size} B, {compute:.3f} s, block {block + 1}: {way}")
                    found[way].append(_block(conductor, WAYS[way], layer, compute, arguments))
            out.append(found)
    return out


def _block(
    conductor: Conductor,
    way: Callable[[DividedLayer], Tensor],
    layer: DividedLayer,
    compute: float,
    arguments: dict[str, Any],
) -> dict[str, Any]:
    """Some calls: seconds of each, CPU seconds per call of this rank and its daemon, the digest of
    the result and the sum of its elements."""
    times = []
    with PacedProducts(compute / layer.rows):
        way(layer)
        conductor.barrier("warm")
        meter = Cpu(conductor, daemon=True)
        for _ in range(arguments["repeat"]):
            begin = time.perf_counter()
            y = way(layer)
            times.append(time.perf_counter() - begin)
    return {
        "times": times,
        "cpu": meter.seconds() / arguments["repeat"],
        "digest": hashlib.blake2b(y.numpy().tobytes(), digest_size=8).hexdigest(),
        "sum": float(y.double().sum()),
        "size": float(y.double().norm()),
    }


@contextmanager
def _joined(conductor: Conductor, arguments: dict[str, Any]) -> Iterator[Group[Tensor]]:
    join_gloo(conductor)
    try:
        arena = 2 * max(size for size, _ in arguments["cases"]) + MARGIN
        with connect(arena_bytes=arena) as session:
            yield session.world
    finally:
        dist.destroy_process_group()
