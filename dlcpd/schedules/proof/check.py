"""Proof that a schedule is well-formed: it terminates, and its result is deterministic.

Builders are tested with it; an executor need not check programs that it built itself.
"""

from collections.abc import Sequence

from dlcpd.schedules.errors import BadSchedule, Stuck
from dlcpd.schedules.model import Buffer, Program, Receive
from dlcpd.schedules.proof.accesses import (
    MemoryAccess,
    accesses,
    by_memory,
    conflicts,
    overlap_in_part,
    uncovered,
)
from dlcpd.schedules.proof.order import PartialOrder
from dlcpd.schedules.proof.structure import check_structure


def check(
    programs: Sequence[Program],
    input_sizes: Sequence[int],
    output_sizes: Sequence[int],
    *,
    input_at: Sequence[int] | None = None,
) -> None:
    """Prove that `programs`, one per rank, are well-formed.

    Every Send has its Receive of equal size and kind; transfers count from 0; spans lie in
    their buffers; steps wait for earlier steps only, and not in a circle; the sends that a
    Receive implies have ended; no two steps that may run at once touch bytes that one of them
    writes; no step reads unwritten bytes; INPUT is not written, but for sums that a Compute
    reads; all ranks have the same pieces.
    Sizes are in bytes, by rank. `input_at`: in place, where INPUT begins within OUTPUT, by
    rank (negative if OUTPUT begins within INPUT); None if they are apart.

    Raises: BadSchedule; Stuck if steps wait for each other.
    """
    check_structure(programs, input_sizes, output_sizes)
    order = PartialOrder(programs)
    for rank, position in order.stuck[:1]:
        step = programs[rank].steps[position]
        raise Stuck(rank, position, step, "waits, by way of others, for itself")
    for rank, program in enumerate(programs):
        at = None if input_at is None else input_at[rank]
        found = accesses(program, at)
        _check_implied(rank, program, order)
        _check_races(rank, program, order, found)
        _check_reads(rank, program, order, found, _given(input_sizes[rank], at))


def _check_implied(rank: int, program: Program, order: PartialOrder) -> None:
    """The peer must have received the implied sends before it sends."""
    for position, step in enumerate(program.steps):
        if not isinstance(step, Receive):
            continue
        answer = order.other_end((rank, position))
        for implied in step.implies:
            if not order.ended_before(order.other_end((rank, implied)), answer):
                why = f"its peer may send it before it has what step {implied} sends"
                raise BadSchedule(rank, position, step, why)


def _check_races(
    rank: int, program: Program, order: PartialOrder, found: list[MemoryAccess]
) -> None:
    for one, two in conflicts(found):
        first, second = sorted((one.position, two.position))
        if first == second:
            if overlap_in_part(one, two):
                why = "its target overlaps an operand in part"
                raise BadSchedule(rank, first, program.steps[first], why)
        elif not (
            order.ended_before((rank, first), (rank, second))
            or order.ended_before((rank, second), (rank, first))
        ):
            why = f"may run while step {first} does, and one writes what the other uses"
            raise BadSchedule(rank, second, program.steps[second], why)


def _check_reads(
    rank: int, program: Program, order: PartialOrder, found: list[MemoryAccess], given: MemoryAccess
) -> None:
    written = by_memory([access for access in found if access.writes])
    for memory, reads in by_memory([access for access in found if not access.writes]).items():
        for read in reads:
            here = (rank, read.position)
            past = [w for w in written[memory] if order.ended_before((rank, w.position), here)]
            at = uncovered(read, [*past, given] if given.memory == memory else past)
            if at is not None:
                step = program.steps[read.position]
                raise BadSchedule(rank, read.position, step, f"reads byte {at}, not written yet")


def _given(input_size: int, input_at: int | None) -> MemoryAccess:
    """The access by which the caller wrote INPUT."""
    if input_at is None:
        return MemoryAccess(Buffer.INPUT, 0, input_size, -1, writes=True)
    return MemoryAccess(Buffer.OUTPUT, input_at, input_at + input_size, -1, writes=True)
