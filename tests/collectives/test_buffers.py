"""The memory of one operation: when it is taken, given back, and counted."""

import numpy as np

from dlcpd.collectives.buffers import Buffers
from dlcpd.collectives.holdings import Holdings
from dlcpd.collectives.scratch import ScratchPool
from dlcpd.schedules.model import Buffer, Program, Receive, Reduce, Span

SIZE = 128
FIRST, SECOND = Span(Buffer.SCRATCH, 0, SIZE), Span(Buffer.SCRATCH + 1, 0, SIZE)
RESULT = Span(Buffer.OUTPUT, 0, SIZE)
PROGRAM = Program(
    (
        Receive(1, 0, FIRST),
        Receive(2, 0, SECOND),
        Reduce(RESULT, (FIRST, SECOND), after=(0, 1)),
    ),
    frozenset({1, 2}),
    (SIZE, SIZE),
)


def buffers() -> Buffers:
    memory = np.arange(SIZE, dtype=np.uint8)
    made = Buffers((memory, np.zeros(SIZE, np.uint8)), ScratchPool(1 << 20), Holdings())
    made.serve(PROGRAM)
    return made


def test_a_span_of_the_caller_is_its_memory() -> None:
    made = buffers()
    span = Span(Buffer.INPUT, 16, 8)
    assert made.bytes_of(span).tolist() == list(range(16, 24))
    assert np.shares_memory(made.bytes_of(span), made.memory[Buffer.INPUT])
    assert made.holdings.held == made.absent(span) == 0


def test_a_scratch_buffer_is_held_from_the_first_use_to_the_end_of_the_last_step() -> None:
    made = buffers()
    assert made.absent(FIRST) == SIZE
    made.bytes_of(FIRST)[:] = 7
    assert made.absent(FIRST) == 0
    assert made.bytes_of(Span(Buffer.SCRATCH, 8, 4)).tolist() == [7] * 4
    assert made.holdings.held == SIZE
    made.release(0)  # the receive
    assert list(made.scratch) == [0]
    made.release(0)  # the reduction
    assert not made.scratch
    assert made.holdings.held == 0


def test_a_buffer_that_was_never_used_is_not_given_back() -> None:
    made = buffers()
    made.release(1)
    made.release(1)
    assert made.holdings.held == 0


def test_memory_besides_the_program_is_counted() -> None:
    made = buffers()
    made.hold(1000)
    aside = made.take(SIZE)
    assert made.holdings.held == 1000 + SIZE
    made.give(aside)
    assert made.holdings.held == 1000


def test_an_operation_that_is_over_holds_nothing() -> None:
    """A buffer may come back later: nothing is subtracted twice, and nothing is counted."""
    made = buffers()
    made.hold(1000)
    aside = made.take(SIZE)
    made.bytes_of(FIRST)
    made.close()
    assert made.holdings.held == 0
    made.give(aside)
    made.bytes_of(SECOND)
    made.hold(5)
    assert made.holdings.held == 0
    made.close()
    assert made.holdings.held == 0
