"""The optimizers as programs: torch's results, in every schedule."""

from typing import Any

import pytest
import torch

from dlcp_client.fused import language as fl
from tests.language.random_programs import fused_one

pytestmark = pytest.mark.usefixtures("one_thread")
COUNT, RANKS, STEPS = 1001, 3, 20
OF_TORCH: dict[str, Any] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01, weight_decay=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=0.1),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
}


def steps(program: fl.FusedProgram) -> torch.Tensor:
    """The weights after some steps, by the oracle."""
    generator = torch.Generator().manual_seed(1)
    held: dict[str, Any] = {"w": torch.randn(COUNT, generator=generator)}
    for name in program.inputs.keys() & {"m", "v"}:
        held[name] = torch.zeros(COUNT)
    for t in range(1, STEPS + 1):
        g = [torch.randn(COUNT, generator=generator) for _ in range(RANKS)]
        numbers = {"t": float(t), "lr": 0.01}
        scalars = {name: torch.tensor(x, dtype=torch.double) for name, x in numbers.items()}
        held |= fl.simulate(program, {**held, **scalars, "g": g}, RANKS).updated
    found: torch.Tensor = held["w"]
    return found


@pytest.mark.parametrize("name", OF_TORCH)
def test_a_program_trains_as_torch_does(name: str) -> None:
    generator = torch.Generator().manual_seed(1)
    weights = torch.nn.Parameter(torch.randn(COUNT, generator=generator))
    optimizer = OF_TORCH[name]([weights])
    for _ in range(STEPS):
        g = [torch.randn(COUNT, generator=generator) for _ in range(RANKS)]
        weights.grad = torch.stack(g).mean(0)
        optimizer.step()
    program = fl.optimizers.ALL[name](shape=(COUNT,), weight_decay=0.1)
    found = steps(program)
    assert torch.allclose(found, weights.detach(), rtol=1e-5, atol=1e-6)
    fused = fused_one(fl.optimizers.ALL[name], shape=(COUNT,), weight_decay=0.1)
    assert torch.equal(steps(fused), found)


def test_lamb_steps_by_the_norm_of_the_weights() -> None:
    program = fl.optimizers.lamb(shape=(COUNT,), weight_decay=0.0)
    generator = torch.Generator().manual_seed(2)
    w = torch.randn(COUNT, generator=generator)
    given: dict[str, Any] = {"w": w, "m": torch.zeros(COUNT), "v": torch.zeros(COUNT)}
    given |= {name: torch.tensor(x, dtype=torch.double) for name, x in (("t", 1.0), ("lr", 0.01))}
    g = [torch.randn(COUNT, generator=generator)] * RANKS
    moved = torch.as_tensor(fl.simulate(program, {**given, "g": g}, RANKS).updated["w"]) - w
    assert torch.allclose(moved.norm(), 0.01 * w.norm(), rtol=1e-4)
    sliced = program.copy()
    sliced.reorder(sliced.split("all_reduce")[1])
    sliced.as_slice("m", "v")
    for ranks in (2, 3, 4, 7):
        fl.check(program, sliced, {**given, "g": g[:1] * ranks}, ranks, 1e-6)
