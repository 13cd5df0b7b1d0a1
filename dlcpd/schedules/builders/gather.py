"""All-gather, gather and scatter: parts of all ranks in rank order, of equal size or not."""

from itertools import accumulate

from dlcpd.schedules.draft import LONGEST, PROGRAMS, Draft, cut, of_input, of_output
from dlcpd.schedules.model import Program, Span

Sizes = tuple[int, ...]  # bytes of each rank's part


@PROGRAMS
def all_gather(rank: int, sizes: Sizes) -> Program:
    """INPUT is this rank's part, OUTPUT all parts. In place, INPUT is its part of OUTPUT."""
    draft = Draft(rank, len(sizes))
    pieces = [cut(part, LONGEST) for part in in_a_row(sizes)]
    first = [0, *accumulate(map(len, pieces))]  # number of the first piece of a rank
    for peer in draft.others:
        draft.send(peer, of_input(0, sizes[rank]))
    for at, piece in enumerate(pieces[rank]):
        own = of_input(piece.start - pieces[rank][0].start, piece.size)
        draft.copy(piece, own, piece=first[rank] + at)
    for peer in reversed(draft.others):
        for at, piece in enumerate(pieces[peer]):
            draft.receive(peer, piece, piece=first[peer] + at)
    return draft.program(*draft.others)


@PROGRAMS
def gather(rank: int, sizes: Sizes, root: int) -> Program:
    """INPUT is this rank's part; OUTPUT all parts, on the root alone."""
    draft, parts = Draft(rank, len(sizes)), in_a_row(sizes)
    own = of_input(0, sizes[rank])
    if rank != root:
        draft.send(root, own)
        return draft.program(root)
    draft.copy(parts[rank], own)
    for peer in draft.others:
        draft.receive(peer, parts[peer])
    return draft.program(*draft.others)


@PROGRAMS
def scatter(rank: int, sizes: Sizes, root: int) -> Program:
    """INPUT is all parts, on the root alone; OUTPUT is this rank's part."""
    draft = Draft(rank, len(sizes))
    result = of_output(0, sizes[rank])
    if rank != root:
        draft.receive(root, result)
        return draft.program(root)
    parts = [of_input(part.start, part.size) for part in in_a_row(sizes)]
    for peer in draft.others:
        draft.send(peer, parts[peer])
    draft.copy(result, parts[rank])
    return draft.program(*draft.others)


def in_a_row(sizes: Sizes) -> list[Span]:
    """Where each part lies in OUTPUT."""
    return [of_output(sum(sizes[:at]), size) for at, size in enumerate(sizes)]
