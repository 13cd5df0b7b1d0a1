"""Optimizers that are programs of the language: alone, and in `fused.register`."""

import logging
import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW

from dlcp_client import Session, fused
from dlcp_client.fused import language as fl
from dlcp_client.fused.language.kernels import BLOCK
from dlcpd.contract.errors import BadConfig, BadTensor
from tests.client.fused_ranks import lion
from tests.client.real import connected, each_rank

COUNT = BLOCK + 1001  # a block and a part of one


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def parameter(count: int = COUNT) -> nn.Parameter:
    return nn.Parameter(torch.randn(count, generator=torch.Generator().manual_seed(1)))


def train(optimizer: Any, *parameters: nn.Parameter) -> None:
    generator = torch.Generator().manual_seed(2)
    for number in range(3):
        optimizer.param_groups[0]["lr"] = 0.01 / (1 + number)  # as a scheduler does
        for one in parameters:
            one.grad = torch.randn(one.shape, generator=generator)
        optimizer.step()


@pytest.mark.parametrize(
    ("program", "kind", "options"),
    [
        (fl.optimizers.sgd, SGD, {"weight_decay": 0.1}),
        (fl.optimizers.adam, Adam, {"weight_decay": 0.1}),
        (fl.optimizers.adamw, AdamW, {"betas": (0.8, 0.99)}),
    ],
)
def test_a_program_is_the_optimizer_that_it_describes(
    program: fl.Source, kind: Any, options: dict[str, Any]
) -> None:
    """By torch's kernel to the bit, by ATen operations to rounding."""
    right = [parameter(), parameter(7)]
    train(kind(right, fused=True, **options), *right)
    for kernel in ("torch", "auto", "eager"):
        ones = [parameter(), parameter(7)]
        optimizer = fused.ProgramOptimizer(ones, program, kernel=kernel, **options)
        train(optimizer, *ones)
        for one, two in zip(ones, right, strict=True):
            if kernel == "eager":
                torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)
            else:
                assert torch.equal(one, two)
        names = {"step", *optimizer.state_names}
        assert all(state.keys() == names for state in optimizer.state.values())


@pytest.fixture(scope="module")
def sessions() -> Iterator[list[Session]]:
    found = connected()
    yield found
    each_rank(lambda rank: found[rank].close())


@pytest.mark.processes
def test_ranks_update_their_parts_by_a_generated_kernel(
    sessions: list[Session], caplog: pytest.LogCaptureFixture
) -> None:
    """As one process does with ATen operations; the state can be saved, and goes on elsewhere."""

    def step(net: nn.Linear, optimizer: Any) -> None:
        optimizer.zero_grad()
        (net(torch.ones(300)) - 1).square().sum().backward()
        optimizer.step()

    def made(kernel: str) -> tuple[nn.Linear, Any]:
        net = nn.Linear(300, 200)
        nn.init.constant_(net.weight, 0.01)
        nn.init.zeros_(net.bias)
        return net, fused.ProgramOptimizer(net.parameters(), lion, kernel=kernel, weight_decay=0.1)

    alone, plain = made("eager")
    for _ in range(4):
        step(alone, plain)
    with caplog.at_level(logging.INFO, "dlcp_client"):
        both = [made("auto") for _ in sessions]
    assert "lion: inductor computes before all_gather" in caplog.text

    def rank(number: int) -> int:
        net, optimizer = both[number]
        handle = fused.register(net, optimizer, session=sessions[number])
        for _ in range(2):
            step(net, optimizer)
        saved = optimizer.state_dict()
        optimizer.load_state_dict(saved)
        for _ in range(2):
            step(net, optimizer)
        held = handle.state_bytes
        handle.close()
        return held

    held = each_rank(rank)
    assert sum(held) == 4 * (300 * 200 + 200), held
    for (net, optimizer), (other, _) in pairwise([*both, (alone, plain)]):
        for mine, right in zip(net.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(mine.detach(), right.detach(), rtol=1e-5, atol=1e-6)
        assert {int(state["step"]) for state in optimizer.state.values()} == {4}
    [one, two] = [net.weight for net, _ in both]
    assert torch.equal(one, two)


@fl.program(g=fl.local, w=fl.replicated, lr=fl.scalar)
def signed(g: Tensor, w: Tensor, lr: Tensor) -> Tensor:
    return fl.update(w, w - lr * fl.all_reduce(g, "avg").sign())


def test_without_a_compiler_torch_computes_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from torch._inductor import config  # noqa: PLC0415  # slow
    from torch._inductor.utils import fresh_cache  # noqa: PLC0415

    missing = {"cpp.cxx": ("/nowhere/c++",)}
    ones = [parameter(9), parameter(9)]
    with fresh_cache(), config.patch(missing), caplog.at_level(logging.WARNING, "dlcp_client"):
        for one in ones:
            train(fused.ProgramOptimizer([one], signed), one)
    assert torch.equal(*ones)
    [said] = [line.getMessage() for line in caplog.records if line.name == "dlcp_client"]
    assert "signed: inductor cannot compile, so ATen operations compute: " in said


@fl.program(g=fl.local, w=fl.replicated, mask=fl.replicated, lr=fl.scalar)
def masked(g: Tensor, w: Tensor, mask: Tensor, lr: Tensor) -> Tensor:
    return fl.update(w, w - lr * mask * fl.all_reduce(g, "avg"))


@fl.program(g=fl.local, w=fl.replicated, lr=fl.scalar)
def both_returned(g: Tensor, w: Tensor, lr: Tensor) -> tuple[Tensor, Tensor]:
    mean = fl.all_reduce(g, "avg")
    return fl.update(w, w - lr * mean), mean


@fl.program(g=fl.local, w=fl.replicated)
def no_update(g: Tensor, w: Tensor) -> Tensor:
    return w - fl.all_reduce(g, "avg")


@pytest.mark.parametrize(
    ("program", "options", "text"),
    [
        (lion, {}, "lion has a number 'weight_decay': give its value"),
        (fl.optimizers.adam, {"kernel": "fast"}, "kernel 'fast' is not known: use auto, torch"),
        (fl.optimizers.lamb, {}, r"norm\(w\), norm\(u\)\): it needs all slices"),
        (masked, {}, "input 'mask' of program masked is not the gradient, the weights, or a state"),
        (both_returned, {}, "returns 2 tensors that ranks compute: return the weights alone"),
        (no_update, {}, "no_update must update the weights that it returns"),
    ],
)
def test_what_an_optimizer_cannot_be_is_named(
    program: fl.Source, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(BadConfig, match=text):
        fused.ProgramOptimizer([parameter(9)], program, **{"kernel": "eager", **options})


NO_RATES: list[Any] = [None, "a", -1.0, math.nan, math.inf, True, [], torch.ones(3)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        *(
            ({"program": one}, "program=.* is not valid: give a function")
            for one in (None, 5, "adam")
        ),
        ({"program": fl.optimizers.sgd(shape=(9,))}, "program=.* is not valid: give a function"),
        *(({"lr": lr}, "lr=.* is not valid: use a number, 0 or more") for lr in NO_RATES),
        *(({"shape": (3,)}, "takes no value 'shape'"), ({"w": 1}, "takes no value 'w' here")),
        ({"program": fl.optimizers.lamb_direction, "eps": "a"}, "has a number 'beta1': give its"),
        (
            {
                "program": fl.optimizers.lamb_direction,
                **dict.fromkeys(("beta1", "beta2", "weight_decay"), 0.1),
                "eps": "a",
            },
            "eps='a' is not valid: use a number, finite",
        ),
    ],
)
def test_mistaken_settings_are_named(given: dict[str, Any], said: str) -> None:
    call: Any = fused.ProgramOptimizer
    program = given.pop("program", fl.optimizers.sgd)
    with pytest.raises(BadConfig, match=said):
        call([parameter(9)], program, **{"kernel": "eager", **given})


def test_the_state_of_another_program_is_refused() -> None:
    def optimizer(source: fl.Source) -> fused.ProgramOptimizer:
        one = parameter(9)
        one.grad = torch.ones_like(one)
        made = fused.ProgramOptimizer([one], source, kernel="eager")
        made.step()
        return made

    saved = optimizer(fl.optimizers.momentum).state_dict()
    with pytest.raises(BadConfig, match=r"shape \(9,\) needs m, v of that shape, and a number"):
        optimizer(fl.optimizers.adam).load_state_dict(saved)
    optimizer(fl.optimizers.momentum).load_state_dict(saved)


def test_what_has_another_place_is_named() -> None:
    turned = nn.Parameter(torch.zeros(3, 4).t())
    with pytest.raises(BadTensor, match="a program updates contiguous parameters"):
        fused.ProgramOptimizer([turned], signed, kernel="eager")
    net = nn.Linear(2, 2)
    optimizer = fused.ProgramOptimizer(net.parameters(), signed, kernel="eager")
    with pytest.raises(BadConfig, match="tune=True with a program, whose kernels may differ"):
        fused.register(net, optimizer, tune=True)
