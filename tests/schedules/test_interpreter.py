"""The interpreter: a result by hand, a schedule that never ends, one whose order matters."""

import numpy as np
import pytest

from dlcpd.schedules.builders.all_reduce import direct
from dlcpd.schedules.errors import Stuck
from dlcpd.schedules.model import Buffer, Program, Receive, Reduce, Send, Span
from dlcpd.schedules.proof.interpreter import interpret

IN, OUT = Buffer.INPUT, Buffer.OUTPUT


def raw(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32).view(np.uint8)


def numbers(out: np.ndarray) -> list[float]:
    return [float(n) for n in out.view(np.float32)]


def test_relay_and_sum_by_hand() -> None:
    pair, first, second = Span(OUT, 0, 8), Span(OUT, 0, 4), Span(OUT, 4, 4)
    programs = [
        Program((Send(1, 0, Span(IN, 0, 8)),), frozenset({1})),
        Program(
            (Receive(0, 0, pair), Reduce(first, (second, first, Span(IN, 0, 4)), after=(0,))),
            frozenset({0}),
        ),
    ]
    inputs = [raw(1, 2), raw(40)]
    assert numbers(interpret(programs, inputs, outputs=[0, 8], dtype="float32", op="sum")[1]) == [
        43,
        2,
    ]


def test_an_average_divides_what_is_final_by_the_number_of_ranks() -> None:
    for last, expected in ((False, 6), (True, 2)):
        steps = (Reduce(Span(OUT, 0, 4), (Span(IN, 0, 4),), last=last),)
        programs = [Program(steps, frozenset())] * 3
        got = interpret(programs, [raw(6)] * 3, outputs=[4] * 3, dtype="float32", op="avg")
        assert numbers(got[2]) == [expected]


def test_in_place_offsets() -> None:
    steps = (Reduce(Span(OUT, 0, 4), (Span(IN, 0, 4), Span(IN, 4, 4))),)
    programs = [Program(steps, frozenset())]
    for output, at in ((4, 0), (4, -4), (12, 4)):
        got = interpret(
            programs, [raw(1, 2)], outputs=[output], dtype="float32", op="sum", input_at=[at]
        )
        expected = {0: [3], -4: [3], 4: [3, 1, 2]}[at]
        assert numbers(got[0]) == expected


@pytest.mark.parametrize("lacking", [0, 1])
def test_a_schedule_that_never_ends_is_named(lacking: int) -> None:
    programs = [direct(rank, 2, 64, 64) for rank in range(2)]
    programs[lacking] = Program((), frozenset())
    with pytest.raises(Stuck, match=f"rank {1 - lacking}, step .*never comes to its end"):
        interpret(programs, [raw(*range(16))] * 2, outputs=[64] * 2, dtype="float32", op="sum")


def test_where_the_order_matters_it_shows() -> None:
    copies = tuple(Reduce(Span(OUT, 0, 4), (Span(IN, 4 * i, 4),)) for i in range(2))
    seen = {
        numbers(
            interpret(
                [Program(copies, frozenset())],
                [raw(1, 2)],
                outputs=[4],
                dtype="float32",
                op="sum",
                seed=seed,
            )[0]
        )[0]
        for seed in range(10)
    }
    assert seen == {1, 2}


def test_bytes_that_nobody_wrote_are_random() -> None:
    got = [
        interpret([Program((), frozenset())], [raw()], outputs=[64], dtype="int8", op="sum", seed=s)
        for s in range(2)
    ]
    assert got[0][0].tobytes() != got[1][0].tobytes()


def test_what_is_lost_of_a_transfer_counts_as_zero() -> None:
    programs = [direct(rank, 2, 128, 64) for rank in range(2)]
    inputs = [raw(*range(32)), raw(*[100] * 32)]
    lost = {(1, 0, 0): [slice(0, 8), slice(60, 64)]}
    first, second = interpret(
        programs, inputs, outputs=[128, 128], dtype="float32", op="sum", lost=lost
    )
    assert numbers(first) == numbers(second)
    assert numbers(first)[:4] == [0, 1, 102, 103]
    assert numbers(first)[14:18] == [114, 15, 116, 117]
