"""All-reduce by recursive doubling: few messages per rank where there are many ranks."""

from dlcpd.schedules.draft import LONGEST, PROGRAMS, Draft, Steps, of_input, of_output
from dlcpd.schedules.model import NOT_REPLICATED, Program, Span


@PROGRAMS
def exchange(rank: int, world: int, size: int) -> Program:
    """In round k, groups of 2**k ranks exchange their sums, pair by pair.

    Both ranks of a pair add the part of the lower ranks first, so all get the same bytes.
    If `world` is no power of two, the first ranks form twos, and the even rank takes part
    for both. Every round needs its own memory: for small sizes.
    """
    draft = Draft(rank, world)
    twos = world - (1 << world.bit_length() - 1)  # pairs that take part as one
    if rank < 2 * twos and rank % 2:
        sent = draft.send(rank - 1, of_input(0, size))
        draft.receive(rank - 1, of_output(0, size), implies=sent, piece=_piece(size))
        return draft.program()
    if world == 1:
        draft.reduce(of_output(0, size), (of_input(0, size),), last=True, piece=_piece(size))
        return draft.program()
    known = _rounds(draft, twos, size)
    if rank < 2 * twos:
        draft.send(rank + 1, of_output(0, size), after=known)
    return draft.program()


def _rounds(draft: Draft, twos: int, size: int) -> Steps:
    """From INPUT to OUTPUT; returns the step that finishes it."""
    rank, taking_part = draft.rank, draft.world - twos
    place = rank // 2 if rank < 2 * twos else rank - twos
    mine, known = _beginning(draft, twos, size)
    distance = 1
    while distance < taking_part:
        other = place ^ distance
        peer = 2 * other if other < twos else other + twos
        theirs = draft.scratch(size)
        draft.send(peer, mine, after=known)
        known += draft.receive(peer, theirs)
        operands = (mine, theirs) if place < other else (theirs, mine)
        distance *= 2
        last = distance == taking_part
        mine = of_output(0, size) if last else draft.scratch(size)
        piece = _piece(size) if last else NOT_REPLICATED
        known = draft.reduce(mine, operands, after=known, last=last, piece=piece)
    return known


def _beginning(draft: Draft, twos: int, size: int) -> tuple[Span, Steps]:
    """This rank's first sum, in memory that the result does not overwrite while it is sent."""
    own, begun = of_input(0, size), draft.scratch(size)
    if draft.rank >= 2 * twos:
        return begun, draft.copy(begun, own)
    theirs = draft.scratch(size)
    arrived = draft.receive(draft.rank + 1, theirs)
    return begun, draft.reduce(begun, (own, theirs), after=arrived)


def _piece(size: int) -> int:
    """Number of the piece; none for a result of several transfers."""
    return 0 if size <= LONGEST else NOT_REPLICATED
