"""A few operations and computations whose times give the cost model its rates."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

import torch
from torch import Tensor, fx

from dlcp_client.fused.language.costs import Rates, product_of, touched_by_kernel
from dlcp_client.fused.language.grouping import fused
from dlcp_client.fused.language.kernels import (
    BLOCK,
    FlatPiece,
    FusedRegion,
    Kernel,
    OperandKind,
    build,
    region_of,
)
from dlcp_client.fused.language.layouts import MM, shape_of
from dlcp_client.fused.language.program import FusedProgram
from dlcp_client.group import Group

SMALL: Final = 1 << 10  # elements of float32, so the time is that of a round
LARGE: Final = 1 << 19  # 2 MiB: 0.3 s at 50 Mbit/s, and 16 times the time of a round at 1 Gbit/s
IN_MEMORY: Final = 1 << 22  # elements: two operands of 16 MiB are in no cache
REPEAT: Final = 3  # times of each; the median counts
LEAST: Final = 1e-9  # seconds, of a clock that shows no difference
MOST_FLOPS: Final = 1 << 28  # of a product that is timed, if its rows allow it: some 10 ms


@dataclass(frozen=True, slots=True)
class Probed:
    """Rates that are equal on all ranks."""

    rates: Rates
    kernels: Mapping[str, float]  # bytes per second, of those that work on every rank

    def of(self, kernel: str) -> Rates:
        """The rates of a schedule with this kernel."""
        rate = self.kernels.get(kernel, self.rates.kernel_bytes_per_s)
        return replace(self.rates, kernel_bytes_per_s=rate)


def probe(group: Group[Tensor], programs: Mapping[str, FusedProgram]) -> Probed:
    """Measure. Every rank calls it alike.

    programs: by kernel, a schedule that has a fused operation. Raises: the error that ended an
    operation; ArenaFull.
    """
    world = group.size
    small, large, scatter, gather = _operations(group)
    memory, product = _memory(), _product(list(programs.values()))
    kernels = [_kernel(program, name) for name, program in programs.items()]
    slowest = agreed(group, [memory, product, *kernels], "max")
    alone, whole = LARGE * 4 * (world - 1) / world, 2 * LARGE * 4 * (world - 1) / world
    rates = Rates(
        link_bps=max(1.0, whole * 8 / max(large - small, 0.1 * large)),
        latency=small,
        memory_bytes_per_s=3 * 4 * IN_MEMORY / max(slowest[0], LEAST),  # two reads and a write
        alone_bps=max(1.0, alone * 8 / max((scatter + gather) / 2 - small, 0.05 * large)),
        product_flops=1 / slowest[1] if slowest[1] else 0.0,
    )
    found = dict(zip(programs, slowest[2:], strict=True))
    return Probed(rates, {name: 1 / one for name, one in found.items() if one < inf})


def agreed(group: Group[Tensor], values: Sequence[float], op: str) -> list[float]:
    """The "min" or "max" of each value over the ranks. Every rank calls it."""
    if not values:
        return []
    vector = torch.tensor(values, dtype=torch.float64)
    group.all_reduce(vector, op).wait()
    found: list[float] = vector.tolist()
    return found


def _operations(group: Group[Tensor]) -> list[float]:
    """Seconds of a small and a large all-reduce, of a reduce-scatter and of an all-gather: from the
    call of the last rank on."""
    x = group.session.zeros(LARGE, torch.float32)
    sizes = [LARGE // group.size] * group.size
    sizes[0] += LARGE - sum(sizes)
    start = sum(sizes[: group.rank])
    mine = x[start : start + sizes[group.rank]]
    calls: list[Callable[[], object]] = [
        lambda: group.all_reduce(x[:SMALL]).wait(),
        lambda: group.all_reduce(x).wait(),
        lambda: group.reduce_scatter(mine, x, "sum", sizes).wait(),
        lambda: group.all_gather(x, mine, sizes).wait(),
    ]
    times = [[_seconds(call) for _ in range(REPEAT)] for call in calls]
    since_last = agreed(group, [one for of_call in times for one in of_call], "min")
    return [
        sorted(since_last[at : at + REPEAT])[REPEAT // 2]
        for at in range(0, len(since_last), REPEAT)
    ]


def _memory() -> float:
    """Seconds of an elementwise operation on IN_MEMORY elements."""
    one, two = torch.ones(IN_MEMORY), torch.ones(IN_MEMORY)
    return min(_seconds(lambda: one.mul_(two)) for _ in range(REPEAT))


def _product(programs: Sequence[FusedProgram]) -> float:
    """Seconds of a floating-point operation of the first product; 0: there is none."""
    nodes = [node for program in programs[:1] for node in program.graph.nodes]
    product = next((node for node in nodes if node.target is MM), None)
    if product is None:
        return 0.0
    one, two = (_ones(factor) for factor in (product.args[0], product.args[1]))
    part: int = max(1, min(len(one), len(one) * MOST_FLOPS // max(product_of(product), 1)))
    operations = 2 * part * int(one.shape[1]) * int(two.shape[1])
    seconds: float = max(min(_seconds(lambda: one[:part] @ two) for _ in range(REPEAT)), LEAST)
    return seconds / max(operations, 1)


def _ones(node: object) -> Tensor:
    assert isinstance(node, fx.Node)  # noqa: S101  # factors of a product are nodes
    return torch.ones(shape_of(node), dtype=node.meta["val"].dtype)


def _kernel(program: FusedProgram, name: str) -> float:
    """Seconds per byte of a kernel on one block; infinite: it does not work here."""
    gather = next(n.meta["fused"] for n in program.graph.nodes if "fused" in n.meta)
    region = region_of(program, gather)
    kernel = build(program, region, name)
    if kernel.name != name:  # a compiler failed, which is said
        return inf
    piece = _piece(program, region)
    best = min(_seconds(lambda: _run(kernel, piece)) for _ in range(REPEAT))
    nodes = list(fused(program.graph, gather))
    elements: int = max(region.gather.meta["val"].numel(), 1)
    return max(best, LEAST) / max(touched_by_kernel(nodes) / elements * BLOCK, 1)


def _run(kernel: Kernel, piece: FlatPiece) -> None:
    with torch.no_grad():
        kernel.run(piece)


def _piece(program: FusedProgram, region: FusedRegion) -> FlatPiece:
    """A block of ones."""

    def of(kind: OperandKind, node: fx.Node) -> Tensor:
        count = () if kind is OperandKind.NUMBER else (BLOCK,)
        return torch.ones(count, dtype=node.meta["val"].dtype)

    operands = [of(*one) for one in region.operands]
    at = {one.node: number for number, one in enumerate(region.operands)}
    gathered = torch.ones(BLOCK, dtype=region.gather.meta["val"].dtype)
    numbers = {
        node.name: torch.ones((), dtype=node.meta["val"].dtype)
        for node in program.graph.nodes
        if node.op == "placeholder" and not shape_of(node)
    }
    results = [gathered, *(operands[at[state]] for state in region.states)]
    return FlatPiece(0, operands, results, numbers)


def _seconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun
