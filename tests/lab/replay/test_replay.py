"""A replayed network trains like any other: parameters, ties, gradients, order."""

import torch
from torch import nn

from dlcp_lab.replay.pace import paces
from dlcp_lab.replay.replay import GRADIENT, SleepClock, WaitingTable, replayed
from dlcp_lab.replay.shapes import Layer

TINY = (
    Layer("table", ((10, 4),), lookup=True),
    Layer("heads", (), 5),
    Layer("linear", ((4, 4), (4,)), 16),
    Layer("words", (), 40, tied_to="table"),
)


def model(rank: int = 0) -> nn.Sequential:
    return replayed(TINY, paces(TINY, 0.003, 1.5), rank)


def test_parameters_are_those_of_the_layers() -> None:
    made = model()
    assert [tuple(p.shape) for p in made.parameters()] == [(10, 4), (4, 4), (4,)]
    assert next(made[0].parameters()) is next(made[3].parameters())
    assert isinstance(made[0], WaitingTable)  # what a bounded policy protects
    assert isinstance(made[0], nn.Embedding)


def test_gradients_are_those_of_the_rank_and_ties_add_up() -> None:
    made = model(rank=1)
    made(torch.zeros(())).backward()
    table, matrix, bias = made.parameters()
    for parameter in (matrix, bias):
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, torch.full(parameter.shape, 2 * GRADIENT))
    assert table.grad is not None
    assert torch.equal(table.grad, torch.full(table.shape, 4 * GRADIENT))


def test_a_clock_makes_up_for_sleeping_too_long() -> None:
    clock = SleepClock()
    clock.wait(0.001)
    late = clock._late  # noqa: SLF001
    assert late >= 0
    clock.wait(0.0)
    assert clock._late <= late + 0.001  # noqa: SLF001  # no sleep, and the debt went down
