"""One rank of `bench schedules`: a tuner's choice, then blocks of runs of each candidate."""

import tempfile
from collections.abc import Callable
from time import perf_counter
from typing import Any, Final

import torch
from torch import Tensor

from dlcp_client.fused import language as fl
from dlcp_lab.ranks.rank import Conductor
from dlcp_lab.ranks.tensors import join_file_store

COLUMNS: Final = 1024  # of the product's result
WARMUP: Final = 1  # runs of a candidate in a block
MARGIN: Final = 64 << 20  # bytes of the arena beyond what the compared candidates need


@fl.program(x=fl.local, w=fl.local, bias=fl.replicated, r=fl.replicated, seed=fl.integer)
def layer(x: Tensor, w: Tensor, bias: Tensor, r: Tensor, seed: Tensor) -> Tensor:
    """A row-parallel layer of tensor parallelism, with its epilogue."""
    return fl.dropout(fl.all_reduce(x @ w) + bias, 0.1, seed) + r


def _layer(size: int, inner: int) -> fl.FusedProgram:
    rows = max(16, size // 4 // COLUMNS)
    shapes: Any = {"x": (rows, inner), "w": (inner, COLUMNS), "bias": (COLUMNS,)}
    return layer(**shapes, r=(rows, COLUMNS))


def _adam(size: int, _inner: int) -> fl.FusedProgram:
    return fl.optimizers.adam(shape=(size // 4,))


PROGRAMS: Final[dict[str, Callable[[int, int], fl.FusedProgram]]] = {"adam": _adam, "layer": _layer}


def run(conductor: Conductor, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """By case: the tuner's rows and choice, and the seconds of all runs of each candidate."""
    size = max(of for _, of in arguments["cases"])
    with join_file_store(conductor, arena_bytes=24 * size + MARGIN) as session:
        return [
            _case(conductor, session.world, PROGRAMS[name](of, arguments["inner"]), arguments)
            for name, of in arguments["cases"]
        ]


def _case(
    conductor: Conductor, group: Any, program: fl.FusedProgram, arguments: dict[str, Any]
) -> dict[str, Any]:
    given = _inputs(program)
    conductor.progress(f"{program.name}: tuning")
    with tempfile.TemporaryDirectory() as folder:
        tuned = fl.tune(program, group, kernel=arguments["kernel"], folder=folder)
        kept = [name for name in program.inputs if name in tuned.kept]
        while not tuned.chosen:
            tuned(**{name: x for name, x in given.items() if name not in kept})
    seconds: dict[str, list[float]] = {row.title: [] for row in tuned.rows}
    for block in range(arguments["blocks"]):
        for one in tuned.candidates:
            if one.title in seconds:  # its kernel works
                conductor.progress(f"{program.name}, block {block + 1}: {one.title}")
                kernel = one.kernel if one.fused else "eager"
                step = fl.lower(one.program, group, kernel=kernel)
                whole = [name for name, of in one.program.inputs.items() if of.kind != "sliced"]
                its = {name: given[name] for name in whole}
                for _ in range(WARMUP):
                    step(**its)
                seconds[one.title] += [_seconds(step, its) for _ in range(arguments["repeat"])]
    return {
        "chosen": tuned.chosen,
        "rows": [(row.title, row.predicted, row.measured) for row in tuned.rows],
        "seconds": seconds,
    }


def _seconds(step: fl.LoweredProgram, given: dict[str, Tensor]) -> float:
    begun = perf_counter()
    step(**given)
    return perf_counter() - begun


def _inputs(program: fl.FusedProgram) -> dict[str, Tensor]:
    """Small values of all inputs, equal on all ranks."""
    found = dict[str, Tensor]()
    for node in program.graph.nodes:
        if node.op == "placeholder":
            like: Tensor = node.meta["val"]
            value = 1e-3 if like.is_floating_point() else 1
            found[node.name] = torch.full(like.shape, value, dtype=like.dtype)
    return found
