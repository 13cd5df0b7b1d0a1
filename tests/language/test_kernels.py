"""The computation of a fused operation in pieces: alike in each kernel, and through the proof of
its schedule."""

import logging
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dlcp_client.fused import language as fl
from dlcp_client.fused.language.kernels import (
    BLOCK,
    FlatPiece,
    Kernel,
    OperandKind,
    kernel_for,
    region_of,
)
from dlcpd.contract.errors import BadConfig
from dlcpd.schedules.builders.all_reduce import direct
from dlcpd.schedules.model import Compute
from dlcpd.schedules.proof.check import check
from dlcpd.schedules.proof.interpreter import interpret
from tests.language.random_programs import fused_one, inputs, made, transformed

pytestmark = pytest.mark.usefixtures("one_thread")
NUMBERS = {
    "t": torch.tensor(3.0, dtype=torch.double),
    "lr": torch.tensor(0.01, dtype=torch.double),
}


@fl.program(g=fl.local, w=fl.replicated, m=fl.replicated, bias=fl.replicated, seed=fl.integer)
def descent(g: Tensor, w: Tensor, m: Tensor, bias: Tensor, seed: Tensor) -> Tensor:
    g = fl.all_reduce(g, "avg")
    fl.update(m, g)
    return fl.update(w, w - m * fl.dropout(g * bias, 0.3, seed))


def computed(program: fl.FusedProgram, choice: str, cuts: list[int]) -> tuple[str, list[Tensor]]:
    """The gathered result and the states, computed in pieces by a kernel."""
    [gather] = program.named("all_gather")
    region = region_of(program, gather)
    kernel: Kernel = kernel_for(program, region, choice)
    generator = torch.Generator().manual_seed(1)
    held: dict[str, Tensor] = {}
    for node in program.graph.nodes:  # the numbers that the region reads
        if node.op == "placeholder":
            like = node.meta["val"]
            drawn = torch.rand(cuts[-1], generator=generator)
            held[node.name] = drawn if like.dim() else NUMBERS.get(node.name, torch.tensor(5))
        elif node.op == "call_function" and not node.meta["val"].dim():
            args: Any = torch.fx.node.map_arg(node.args, lambda one: held[one.name])
            held[node.name] = node.target(*args)
    result = torch.zeros(cuts[-1])
    for first, end in pairwise(cuts):
        operands = [
            held[node.name] if kind is OperandKind.NUMBER else held[node.name][first:end]
            for kind, node in region.operands
        ]
        states = [held[node.name][first:end] for node in region.states]
        numbers = {name: x for name, x in held.items() if not x.dim()}
        kernel.run(FlatPiece(first, operands, [result[first:end], *states], numbers))
    return kernel.name, [result, *(held[node.name] for node in region.states)]


CUTS = [0, 5, 1000, BLOCK + 1500, 2 * BLOCK + 3000]


@pytest.mark.processes  # a compiler
@pytest.mark.parametrize("source", [fl.optimizers.adam, descent], ids=["adam", "descent"])
def test_compiled_pieces_equal_those_of_torch(source: fl.Source) -> None:
    program = fused_one(source, shape=(CUTS[-1],))
    name, right = computed(program, "eager", [0, CUTS[-1]])
    assert name == "eager"
    assert all(
        torch.equal(*pair) for pair in zip(right, computed(program, "eager", CUTS)[1], strict=True)
    )
    name, found = computed(program, "inductor", CUTS)
    assert name == "inductor"
    for one, two in zip(right, found, strict=True):
        assert torch.allclose(one, two, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "adamw"])
def test_an_optimizer_runs_the_kernel_of_torch(name: str) -> None:
    program = fused_one(fl.optimizers.ALL[name], shape=(5000,))
    cuts = [0, 64, 4096, 5000]
    _, right = computed(program, "eager", cuts)
    chosen, found = computed(program, "auto", cuts)
    assert chosen == "torch"
    for one, two in zip(right, found, strict=True):
        assert torch.allclose(one, two, rtol=1e-5, atol=1e-6)


def test_torch_has_no_kernel_for_another_program() -> None:
    program = fused_one(descent, shape=(50,))
    with pytest.raises(BadConfig, match="torch has no kernel for the operation all_gather"):
        computed(program, "torch", [0, 50])
    with pytest.raises(BadConfig, match="kernel 'fast' is not known: use auto, torch, inductor"):
        computed(program, "fast", [0, 50])


def test_a_missing_compiler_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    from torch._inductor import config  # noqa: PLC0415  # slow
    from torch._inductor.utils import fresh_cache  # noqa: PLC0415

    program = fused_one(descent, shape=(50,))
    _, right = computed(program, "eager", [0, 50])
    caplog.clear()
    missing = {"cpp.cxx": ("/nowhere/c++",)}
    with fresh_cache(), config.patch(missing), caplog.at_level(logging.INFO, "dlcp_client"):
        for _ in range(2):
            name, found = computed(program, "auto", [0, 20, 50])
            assert name == "eager"
            assert all(torch.equal(*pair) for pair in zip(right, found, strict=True))
    said = [one.getMessage() for one in caplog.records if one.name == "dlcp_client"]
    assert len(said) == 1
    assert "descent: inductor cannot compile, so ATen operations compute: " in said[0]


@pytest.mark.parametrize("world", [2, 3])
def test_schedules_of_random_programs_give_the_oracles_results(world: int) -> None:
    checked = 0
    for seed in range(0, 80, 2):
        original = made(seed, norms=False)
        program, _ = transformed(original, seed)
        fused = {node.meta["fused"] for node in program.graph.nodes if "fused" in node.meta}
        values = _by_node(program, inputs(original, seed, world), world)
        for gather in sorted(fused):
            _schedule_equals(program, gather, values, world)
            checked += 1
    assert checked > 15


def _by_node(program: fl.FusedProgram, given: dict[str, Any], ranks: int) -> dict[str, Any]:
    """The whole value of every node, by the oracle; of a local one, the values of all ranks."""
    every = program.copy()
    nodes = [n for n in every.graph.nodes if n.op != "output" and n.target is not None]
    every.graph.output_node().args = (nodes,)
    return dict(zip([n.name for n in nodes], fl.simulate(every, given, ranks).outputs, strict=True))


def _schedule_equals(
    program: fl.FusedProgram, gather: str, values: dict[str, Any], world: int
) -> None:
    region = region_of(program, gather)
    kernel = kernel_for(program, region, "eager")
    like = region.gather.meta["val"]
    size = like.numel() * 4
    schedules = [direct(rank, world, size, 64, True) for rank in range(world)]
    check(schedules, [size] * world, [size] * world)
    states = {
        node.name: values[node.name].reshape(-1).clone()
        for node in (
            *region.states,
            *(n for kind, n in region.operands if kind is OperandKind.STATE),
        )
    }

    def compute(_: int, step: Compute, source: Any, target: Any) -> None:
        first, end = step.target.start // 4, (step.target.start + step.target.size) // 4
        operands = []
        for kind, node in region.operands:
            if kind is OperandKind.REDUCED:
                operands.append(torch.from_numpy(source.view(np.float32)))
            elif kind is OperandKind.STATE:
                operands.append(states[node.name][first:end])
            elif kind is OperandKind.NUMBER:
                operands.append(values[node.name])
            else:
                operands.append(values[node.name].expand(like.shape).reshape(-1)[first:end])
        results = [states[node.name][first:end] for node in region.states]
        into = torch.from_numpy(target.view(np.float32))
        kernel.run(FlatPiece(first, operands, [into, *results], {}))

    local = values[region.scatter.all_input_nodes[0].name]
    contributions = [one.contiguous().reshape(-1).numpy().view(np.uint8) for one in local]
    found = interpret(
        schedules,
        contributions,
        outputs=[size] * world,
        dtype="float32",
        op=str(region.scatter.args[1]),
        compute=compute,
    )
    right = values[gather].reshape(-1)
    for one in found:
        assert torch.equal(torch.from_numpy(one.view(np.float32)), right)
    for state in region.states:
        update = next(user for user in state.users if "update" in user.name)
        assert torch.equal(states[state.name], values[update.name].reshape(-1))
