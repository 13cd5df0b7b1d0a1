"""Checks of single programs, and of the two ends of each transfer."""

from collections.abc import Sequence, Set

from dlcpd.schedules.errors import BadSchedule
from dlcpd.schedules.model import (
    NOT_REPLICATED,
    Buffer,
    Compute,
    Decode,
    Encode,
    Program,
    Receive,
    Reduce,
    Send,
    Span,
    Step,
    Transfer,
    replicated,
    spans,
    written,
)


def check_structure(
    programs: Sequence[Program], input_sizes: Sequence[int], output_sizes: Sequence[int]
) -> None:
    """Check steps, transfers and pieces. Raises: BadSchedule."""
    computes = any(program.computed for program in programs)
    for rank, program in enumerate(programs):
        sizes = (input_sizes[rank], output_sizes[rank], *program.scratch)
        _check_indices(rank, program)
        sums = _used_sums(program) if computes else frozenset()
        for position, step in enumerate(program.steps):
            why = _wrong_step(position, step, sizes) or _wrong_of_kind(rank, step, programs)
            why = why or _wrong_target(step, sums)
            if why:
                raise BadSchedule(rank, position, step, why)
    _check_pieces(programs)


def _wrong_of_kind(rank: int, step: Step, programs: Sequence[Program]) -> str:
    if isinstance(step, Reduce):
        return _wrong_reduce(step)
    if isinstance(step, Encode | Decode):
        return _wrong_coding(step)
    if isinstance(step, Compute):
        return _wrong_compute(step)
    return _wrong_transfer(rank, step, programs)


def _wrong_step(position: int, step: Step, sizes: Sequence[int]) -> str:
    if not all(0 <= earlier < position for earlier in step.after):
        return "waits for a step that does not come before it"
    for span in spans(step):
        if not 0 <= span.buffer < len(sizes):
            return f"there is no buffer {span.buffer}"
        if span.start < 0 or span.size <= 0 or span.start + span.size > sizes[span.buffer]:
            return f"{span} is empty or not in its buffer of {sizes[span.buffer]} B"
    return ""


def _used_sums(program: Program) -> Set[Span]:
    """Spans that the client computes from, or that a rank sends as a part of such a sum."""
    return {
        step.source if isinstance(step, Compute) else step.span
        for step in program.steps
        if isinstance(step, Compute) or (isinstance(step, Send) and not step.lossy)
    }


def _wrong_target(step: Step, sums: Set[Span]) -> str:
    """`sums`: the spans of INPUT that may be written, once their own values are added."""
    if isinstance(step, Send) or written(step).buffer != Buffer.INPUT:
        return ""
    if isinstance(step, Reduce) and step.target in sums and step.target in step.operands:
        return ""
    return "INPUT is the caller's, and read only but for sums that a Compute reads"


def _wrong_reduce(step: Reduce) -> str:
    if not step.operands:
        return "there is nothing to reduce"
    if any(operand.size != step.target.size for operand in step.operands):
        return "operands and target differ in size"
    return ""


def _wrong_coding(step: Encode | Decode) -> str:
    wire = step.target if isinstance(step, Encode) else step.source
    if wire.buffer < Buffer.SCRATCH:
        return "what a codec makes lies in scratch memory"
    if isinstance(step, Encode) and step.rounds != (step.source.buffer == Buffer.OUTPUT):
        return "a result, and nothing else, becomes what the other ranks get of it"
    return ""


def _wrong_compute(step: Compute) -> str:
    if (step.source.buffer, step.target.buffer) != (Buffer.INPUT, Buffer.OUTPUT):
        return "the client computes from INPUT to OUTPUT: it has no other memory"
    if (step.source.start, step.source.size) != (step.target.start, step.target.size):
        return "the client computes bytes of OUTPUT from the same bytes of INPUT"
    return ""


def _wrong_transfer(rank: int, step: Transfer, programs: Sequence[Program]) -> str:
    if step.peer == rank or not 0 <= step.peer < len(programs):
        return f"rank {step.peer} cannot be a peer of rank {rank}"
    if step.peer not in programs[rank].peers:
        return f"rank {step.peer} is not among the peers of the program"
    there = programs[step.peer]
    ends = there.receives if isinstance(step, Send) else there.sends
    at = ends.get((rank, step.index))
    if at is None:
        return "its peer has no other end for it"
    other = there.steps[at]
    assert isinstance(other, Transfer)  # noqa: S101  # `ends` holds no others
    if _kind(other) != _kind(step):
        return f"its other end is {other}"
    if step.lossy and other.origin != step.origin:
        return f"its bounds are those of byte {step.origin}, and of {other.origin} at its other end"
    if isinstance(step, Send):
        inside = step.span.buffer == Buffer.INPUT or step.encodes
        return "only what lies in INPUT may be lossy" if step.lossy and not inside else ""
    if not all(_is_send_to(programs[rank], implied, step.peer) for implied in step.implies):
        return "implies a step that is no Send to the same peer"
    return ""


def _kind(step: Transfer) -> tuple[int, bool, int]:
    """Values that are equal at both ends of a transfer."""
    return step.span.size, step.lossy, step.encodes


def _is_send_to(program: Program, position: int, peer: int) -> bool:
    if not 0 <= position < len(program.steps):
        return False
    step = program.steps[position]
    return isinstance(step, Send) and step.peer == peer


def _check_indices(rank: int, program: Program) -> None:
    """Transfers of a pair count from 0, without holes, in the order of the program."""
    for kind in (Send, Receive):
        counts: dict[int, int] = {}
        for position, step in enumerate(program.steps):
            if not isinstance(step, kind):
                continue
            expected = counts.get(step.peer, 0)
            if step.index != expected:
                why = f"transfers of a pair count from 0, here is {expected} due"
                raise BadSchedule(rank, position, step, why)
            counts[step.peer] = expected + 1


def _check_pieces(programs: Sequence[Program]) -> None:
    """Every rank has the pieces that rank 0 has, each once and of the same size."""
    first: dict[int, int] = {}
    for rank, program in enumerate(programs):
        sizes: dict[int, int] = {}
        for position, step in enumerate(program.steps):
            if isinstance(step, Send) or step.piece == NOT_REPLICATED:
                continue
            if step.piece in sizes:
                raise BadSchedule(rank, position, step, "the piece has two steps")
            sizes[step.piece] = replicated(step).size
        if not rank:
            first = sizes
        elif sizes != first:
            raise BadSchedule(rank, -1, "its pieces", f"are {sizes}, those of rank 0 {first}")
