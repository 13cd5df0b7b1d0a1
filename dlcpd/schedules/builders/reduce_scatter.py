"""Reduce-scatter: every rank gets the sum of its part."""

from dlcpd.schedules.builders.gather import Sizes
from dlcpd.schedules.draft import PROGRAMS, Draft, cut, of_input, of_output
from dlcpd.schedules.model import Program


@PROGRAMS
def reduce_scatter(rank: int, sizes: Sizes, chunk_bytes: int, adds: bool = False) -> Program:
    """INPUT is a part for every rank, of `sizes` bytes; OUTPUT the sum of this rank's part.

    Contributions are lossy; the owner of a part adds them in the order of ranks. In place,
    OUTPUT is this rank's part of INPUT.

    `adds`: of two ranks, the client adds its own part. OUTPUT then gets the other's contribution.
    """
    draft, offsets = Draft(rank, len(sizes)), [sum(sizes[:at]) for at in range(len(sizes))]
    parts = [cut(of_input(at, size), chunk_bytes) for at, size in zip(offsets, sizes, strict=True)]
    for row in range(max(map(len, parts))):
        for peer in draft.others:
            for span in parts[peer][row : row + 1]:
                draft.send(peer, span, lossy=True)
        for own in parts[rank][row : row + 1]:
            result = of_output(own.start - offsets[rank], own.size)
            if adds:
                [other] = draft.others
                draft.receive(other, result, lossy=True, origin=own.start)
            else:
                draft.reduce_from_all(result, own, lossy=True)
    return draft.program(*draft.others)
