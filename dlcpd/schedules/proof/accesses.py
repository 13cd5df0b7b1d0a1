"""Memory accesses of the steps of one rank, and the conflicts between them."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dlcpd.schedules.model import Buffer, Encode, Program, Reduce, Send, Span, read, written


@dataclass(frozen=True, slots=True, order=True)
class MemoryAccess:
    """Bytes [start, stop) of a memory, as a step reads or writes them."""

    memory: int  # a Buffer; OUTPUT for INPUT as well where they share memory
    start: int
    stop: int
    position: int
    writes: bool


def accesses(program: Program, input_at: int | None) -> list[MemoryAccess]:
    """All accesses, by memory and start. `input_at`: where INPUT lies in OUTPUT; None: apart.

    A copy of bytes to their own place is no access.
    """
    out: list[MemoryAccess] = []
    for position, step in enumerate(program.steps):
        reads = [place(span, input_at, position) for span in read(step)]
        if isinstance(step, Send):
            out += reads
            continue
        target = place(written(step), input_at, position, writes=True)
        if not isinstance(step, Reduce) or step.last or reads != [replace(target, writes=False)]:
            out += [*reads, target]
        if isinstance(step, Encode) and step.rounds:
            out.append(place(step.source, input_at, position, writes=True))
    return sorted(out)


def place(span: Span, input_at: int | None, position: int, *, writes: bool = False) -> MemoryAccess:
    """Where a span lies in memory."""
    memory, start = span.buffer, span.start
    if memory == Buffer.INPUT and input_at is not None:
        memory, start = Buffer.OUTPUT, start + input_at
    return MemoryAccess(memory, start, start + span.size, position, writes)


def conflicts(found: list[MemoryAccess]) -> Iterator[tuple[MemoryAccess, MemoryAccess]]:
    """Pairs that overlap in at least one byte, which one of them writes."""
    open_: list[MemoryAccess] = []
    for access in found:
        open_ = [o for o in open_ if o.memory == access.memory and o.stop > access.start]
        for other in open_:
            if other.writes or access.writes:
                yield other, access
        if access.stop > access.start:
            open_.append(access)


def overlap_in_part(one: MemoryAccess, two: MemoryAccess) -> bool:
    """Whether two accesses that overlap are not of the same bytes."""
    return (one.start, one.stop) != (two.start, two.stop)


def uncovered(read: MemoryAccess, written: list[MemoryAccess]) -> int | None:
    """The first byte of `read` that none of `written` wrote; None if all are written."""
    at = read.start
    for access in sorted(written):
        if access.start <= at < access.stop:
            at = access.stop
    return at if at < read.stop else None


def by_memory(found: list[MemoryAccess]) -> defaultdict[int, list[MemoryAccess]]:
    """Accesses by memory, in their order."""
    out = defaultdict(list)
    for access in found:
        out[access.memory].append(access)
    return out
