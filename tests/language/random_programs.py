"""Random programs, random transformations of them, and random inputs: the same for a seed."""

from collections.abc import Callable
from random import Random
from typing import Any, Final

import torch
from torch import Tensor

from dlcp_client.fused import language as fl
from dlcp_client.fused.language import FusedProgram
from dlcpd.contract.errors import BadConfig

Pool = list[Tensor]
Step = Callable[[Random, Pool, dict[str, Tensor]], Tensor]


def _any(random: Random, pool: Pool) -> Tensor:
    return random.choice(pool)


def _inverse(random: Random, pool: Pool, _: dict[str, Tensor]) -> Tensor:
    x = _any(random, pool)
    return _any(random, pool) / (x * x + 1)


ELEMENTWISE: Final[list[Step]] = [
    lambda random, pool, _: _any(random, pool) + _any(random, pool),
    lambda random, pool, _: _any(random, pool) * 0.5 - _any(random, pool),
    lambda random, pool, _: _any(random, pool) * _any(random, pool),
    _inverse,
    lambda random, pool, _: _any(random, pool).abs().sqrt(),
    lambda random, pool, _: torch.maximum(_any(random, pool), -_any(random, pool)),
    lambda random, pool, _: torch.where(
        _any(random, pool) > 0, _any(random, pool), _any(random, pool)
    ),
    lambda random, pool, given: _any(random, pool) + given["bias"],
    lambda random, pool, given: _any(random, pool) * given["lr"],
    lambda random, pool, given: fl.dropout(_any(random, pool), 0.3, given["seed"]),
    lambda random, pool, _: fl.cast(fl.cast(_any(random, pool), torch.bfloat16), torch.float32),
    lambda random, pool, given: fl.all_reduce(given["h"] * 2, random.choice(["sum", "avg"])),
]
NORMS: Final[list[Step]] = [
    lambda random, pool, _: _any(random, pool) / (1 + fl.norm(_any(random, pool))),
    lambda random, pool, _: _any(random, pool) / (1 + _any(random, pool).abs().sum()),
    lambda random, pool, _: torch.softmax(_any(random, pool), -1),
]


def made(seed: int, norms: bool) -> FusedProgram:
    """A program of 3 to 9 steps on tensors of one or two dimensions."""
    random = Random(seed)
    shape = tuple(random.randint(1, 11) for _ in range(random.randint(1, 2)))
    steps = [*ELEMENTWISE, *NORMS] if norms else ELEMENTWISE
    chosen = [random.choice(steps) for _ in range(random.randint(3, 9))]

    @fl.program(
        g=fl.local,
        h=fl.local,
        w=fl.replicated,
        m=fl.replicated,
        bias=fl.replicated,
        lr=fl.scalar,
        seed=fl.integer,
    )
    def drawn(  # noqa: PLR0917  # inputs of a program
        g: Tensor, w: Tensor, m: Tensor, h: Tensor, bias: Tensor, lr: Tensor, seed: Tensor
    ) -> list[Tensor]:
        given = {"h": h, "bias": bias, "lr": lr, "seed": seed}
        pool = [fl.all_reduce(g, random.choice(["sum", "avg"])), w, m]
        for step in chosen:
            pool.append(step(random, pool, given))
        if random.random() < 0.7:
            pool.append(fl.update(m, pool[-1]))
            pool.append(pool[-1] * 0.5 + pool[0])
        results = [fl.update(w, pool[-1])]
        if random.random() < 0.3:
            results.append(random.choice(pool[3:]))
        return results

    bias_shape = tuple(size if random.random() < 0.7 else 1 for size in shape[-1:])
    return drawn(shape=shape, bias=bias_shape)


def transformed(original: FusedProgram, seed: int) -> tuple[FusedProgram, list[str]]:
    """A copy after some random transformations, and what they were; illegal ones change nothing."""
    random, changed, done = Random(seed), original.copy(), list[str]()
    for _ in range(14):
        before = changed.text
        name, call = _drawn(random, changed)
        try:
            call()
        except BadConfig:
            assert changed.text == before, f"a refused {name} changed the program"
        else:
            done.append(name)
    return changed, done


def _drawn(random: Random, program: FusedProgram) -> tuple[str, Callable[[], Any]]:
    nodes = [node.name for node in program.graph.nodes if node.op == "call_function"]
    gathers = program.named("all_gather") or nodes
    scatters = program.named("reduce_scatter") or nodes
    reductions = program.named("all_reduce") or nodes
    kind = random.choice(["split", "reorder", "reorder", "as_slice", "fuse"])
    if kind == "split":
        name, dim = random.choice(reductions), random.randint(0, 1)
        return f"split({name}, {dim})", lambda: program.split(name, dim)
    if kind == "reorder":
        name = random.choice(gathers)
        only = random.sample(nodes, min(len(nodes), random.choice([0, 0, 1, 2])))
        return f"reorder({name}, {only})", lambda: program.reorder(name, *only)
    if kind == "as_slice":
        name = random.choice(["w", "m", "m", "bias"])
        return f"as_slice({name})", lambda: program.as_slice(name)
    one, two = random.choice(scatters), random.choice(gathers)
    return f"fuse({one}, {two})", lambda: program.fuse(one, two)


def inputs(program: FusedProgram, seed: int, ranks: int) -> dict[str, Any]:
    """Random values of the inputs."""
    generator = torch.Generator().manual_seed(seed)
    found: dict[str, Any] = {
        "lr": torch.tensor(0.3, dtype=torch.double),
        "seed": torch.tensor(seed),
    }
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name not in found:
            shape, one = node.meta["val"].shape, program.inputs[node.name]
            drawn = [torch.randn(shape, generator=generator) for _ in range(ranks)]
            found[node.name] = drawn if one == fl.local else drawn[0]
    return found


def fused_one(source: fl.Source, **shapes: Any) -> FusedProgram:
    """A program with one all-reduce, on slices, in one operation."""
    program = source(**shapes)
    scatter, gather = program.split("all_reduce")
    program.reorder(gather)
    program.as_slice(*[name for name in ("m", "v") if name in program.inputs])
    program.fuse(scatter, *program.named("all_gather"))
    return program
