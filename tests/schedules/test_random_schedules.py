"""Random schedules are well-formed, of every kind, and give the same in any order."""

from collections import Counter

import pytest

from dlcpd.schedules.model import Buffer, Receive, Reduce, Send
from dlcpd.schedules.proof.check import check
from dlcpd.schedules.proof.interpreter import interpret
from tests.schedules.random_schedules import RandomSchedule, random_schedule


def results(made: RandomSchedule, order: int) -> list[bytes]:
    got = interpret(
        made.programs, made.inputs, outputs=made.outputs, dtype=made.dtype, op=made.op, seed=order
    )
    return [out.tobytes() for out in got]


@pytest.mark.parametrize("world", range(1, 7))
def test_they_are_well_formed_and_give_the_same_in_any_order(world: int) -> None:
    for seed in range(100 * world, 100 * world + 40):
        made = random_schedule(seed, world)
        check(made.programs, [len(given) for given in made.inputs], made.outputs)
        assert results(made, 0) == results(made, 1) == results(made, 2)


def test_they_are_of_every_kind() -> None:
    seen: Counter[str] = Counter()
    for seed in range(40):
        for program in random_schedule(seed, 3).programs:
            for step in program.steps:
                seen[type(step).__name__] += 1
                if isinstance(step, Receive):
                    seen["implies"] += bool(step.implies)
                if isinstance(step, Send):
                    seen["relay"] += step.span.buffer != Buffer.INPUT
                if isinstance(step, Reduce):
                    seen["in place"] += step.target in step.operands
                    seen["scratch"] += step.target.buffer >= Buffer.SCRATCH
                    seen["sum"] += len(step.operands) > 1
    assert min(seen.values()) > 40, seen


def test_equal_seeds_give_equal_schedules() -> None:
    one, two = random_schedule(5, 3), random_schedule(5, 3)
    assert [p.steps for p in one.programs] == [p.steps for p in two.programs]
    assert [p.steps for p in random_schedule(6, 3).programs] != [p.steps for p in one.programs]
