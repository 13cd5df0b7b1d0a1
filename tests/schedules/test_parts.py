"""Receives whose data may be reduced while they come: only where nothing else is waited for."""

import pytest

from dlcpd.schedules.builders.all_reduce import direct, one_shot
from dlcpd.schedules.model import Buffer, Part, Program, Receive, Reduce, Send, Span
from tests.schedules.collectives import all_reduces

IN, OUT = Span(Buffer.INPUT, 0, 64), Span(Buffer.OUTPUT, 0, 64)
FIRST, SECOND = Span(Buffer.SCRATCH, 0, 64), Span(Buffer.SCRATCH + 1, 0, 64)


@pytest.mark.parametrize("world", [2, 3, 5])
def test_every_contribution_of_a_direct_all_reduce_is_one(world: int) -> None:
    for rank in range(world):
        program = direct(rank, world, 4096, 256)
        reductions = [at for at, step in enumerate(program.steps) if isinstance(step, Reduce)]
        assert {part.reduction for part in program.parts.values()} == set(reductions)
        assert len(program.parts) == len(reductions) * (world - 1)
        assert {part.coming for part in program.parts.values()} == {world - 1}


@pytest.mark.parametrize("world", [2, 3, 4])
def test_parts_of_every_schedule_are_the_operands_that_they_name(world: int) -> None:
    for case in all_reduces(world, 4096).values():
        for program in case.programs:
            for position, part in program.parts.items():
                receive, reduce = program.steps[position], program.steps[part.reduction]
                assert isinstance(receive, Receive)
                assert isinstance(reduce, Reduce)
                assert reduce.operands[part.operand] == receive.span
                waited = [program.steps[at] for at in reduce.after]
                assert all(isinstance(step, Receive) for step in waited)
                assert len(waited) == part.coming


def program(*steps: Receive | Reduce | Send) -> Program:
    return Program(steps, frozenset({1, 2}), (64, 64))


def test_a_reduction_that_waits_for_a_send_as_well_has_none() -> None:
    """It may not write over what is still to be sent."""
    waiting = program(Send(1, 0, IN), Receive(1, 0, FIRST), Reduce(IN, (IN, FIRST), (0, 1)))
    assert not waiting.parts
    free = program(Send(1, 0, IN), Receive(1, 0, FIRST), Reduce(OUT, (IN, FIRST), (1,)))
    assert free.parts == {1: Part(2, 1, 1)}


def test_a_part_of_an_operand_is_none() -> None:
    half = Span(Buffer.SCRATCH, 0, 32)
    assert not program(Receive(1, 0, half), Reduce(OUT, (IN, FIRST), (0,))).parts
    twice = program(Receive(1, 0, FIRST), Reduce(OUT, (FIRST, FIRST), (0,)))
    assert not twice.parts


def test_one_shot_waits_for_its_own_sends() -> None:
    """Its result may lie where its contribution does, which peers have not yet."""
    assert not one_shot(1, 3, 256).parts
