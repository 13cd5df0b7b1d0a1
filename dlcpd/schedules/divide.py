"""Divides an operation among the engines of a host: the part of the program that each runs.

A part is a range of the tensor (`Collective.by_range`) or every n-th transfer with the steps
tied to it. Parts share no transfer, and no memory that one of them writes, so engines run them
without synchronisation. A transfer is in the same part at both ends.
"""

from collections.abc import Iterable
from dataclasses import replace

from dlcpd.contract.collectives import Share
from dlcpd.schedules.layout import ALIGNMENT
from dlcpd.schedules.model import (
    Buffer,
    Compute,
    Program,
    Receive,
    Reduce,
    Send,
    Span,
    Step,
    Transfer,
)


def part_of(size: int, share: Share) -> tuple[int, int]:
    """(first byte, bytes) of a part of a tensor of `size` bytes: aligned; the last are shorter."""
    each = -(-size // share.of // ALIGNMENT) * ALIGNMENT
    start = min(share.number * each, size)
    return start, min(each, size - start)


def moved(program: Program, by: int) -> Program:
    """The program for a tensor's bytes from `by` on, made from one that begins at its start."""
    return _with_steps(program, (_moved(step, by) for step in program.steps))


def selected(program: Program, share: Share) -> Program:
    """The steps of every n-th transfer to and from each rank, and of the steps tied to them: for
    programs in which no step depends on transfers of different numbers."""
    numbers = _numbers(program)
    mine = [at for at, number in enumerate(numbers) if number % share.of == share.number]
    new = {at: position for position, at in enumerate(mine)}
    return _with_steps(program, (_renumbered(program.steps[at], new, share.of) for at in mine))


def _with_steps(program: Program, steps: Iterable[Step]) -> Program:
    """A program with the same peers and scratch memory."""
    return Program(tuple(steps), program.peers, program.scratch)


def _moved(step: Step, by: int) -> Step:
    if isinstance(step, Reduce):
        operands = tuple(_moved_span(span, by) for span in step.operands)
        return replace(step, target=_moved_span(step.target, by), operands=operands)
    if isinstance(step, Compute):
        target, source = _moved_span(step.target, by), _moved_span(step.source, by)
        return replace(step, target=target, source=source)
    assert isinstance(step, Transfer)  # noqa: S101  # a program is divided before it is encoded
    return replace(step, span=_moved_span(step.span, by), origin=step.origin + by)


def _moved_span(span: Span, by: int) -> Span:
    return span if span.buffer >= Buffer.SCRATCH else replace(span, start=span.start + by)


def _numbers(program: Program) -> list[int]:
    """By step: the least transfer index in its group of tied steps, which is the same at both ends
    of each transfer; k in the k-th group without a transfer."""
    groups = _tied(program)
    numbers, without = [0] * len(program.steps), 0
    for group in groups:
        transfers = [program.steps[at] for at in group]
        indices = [step.index for step in transfers if isinstance(step, Send | Receive)]
        if not indices:
            indices, without = [without], without + 1
        for at in group:
            numbers[at] = min(indices)
    return numbers


def _tied(program: Program) -> list[list[int]]:
    """Groups of steps that wait for each other or use the same scratch memory."""
    first = list(range(len(program.steps)))  # links that lead to the first step of a group

    def root(at: int) -> int:
        while first[at] != at:
            at = first[at]
        return at

    owner: dict[int, int] = {}  # by scratch buffer: a step that uses it
    for at, step in enumerate(program.steps):
        tied = [*step.after, *(step.implies if isinstance(step, Receive) else ())]
        tied += [owner.setdefault(buffer, at) for buffer in program.touched[at]]
        for other in tied:
            low, high = sorted((root(at), root(other)))
            first[high] = low
    groups: dict[int, list[int]] = {}
    for at in range(len(first)):
        groups.setdefault(root(at), []).append(at)
    return list(groups.values())


def _renumbered(step: Step, new: dict[int, int], parts: int) -> Step:
    """A step in its part, where the transfers between two ranks count from 0 again."""
    after = tuple(new[at] for at in step.after)
    if isinstance(step, Reduce | Compute):
        return replace(step, after=after)
    assert isinstance(step, Transfer)  # noqa: S101  # likewise
    index = step.index // parts
    if isinstance(step, Receive):
        implies = tuple(new[at] for at in step.implies)
        return replace(step, index=index, after=after, implies=implies)
    return replace(step, index=index, after=after)
