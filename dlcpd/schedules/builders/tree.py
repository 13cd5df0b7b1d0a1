"""Binomial trees, and the all-reduce that goes up such a tree and down again."""

from dataclasses import dataclass

from dlcpd.schedules.draft import PROGRAMS, Draft, Steps, cut, of_input, of_output
from dlcpd.schedules.model import NOT_REPLICATED, Program, Span


@dataclass(frozen=True, slots=True)
class TreeNeighbours:
    """The neighbours of a rank in a tree."""

    parent: int | None  # None: the root
    children: tuple[int, ...]  # in the order of the ranks below them


def binomial(rank: int, world: int, root: int = 0) -> TreeNeighbours:
    """The tree in which the child at distance 2**k has a subtree of 2**k ranks at most."""
    place = (rank - root) % world
    reach = place & -place or world  # ranks of its subtree, at most
    distances = [1 << k for k in range(world.bit_length())]
    children = [place + d for d in distances if d < reach and place + d < world]
    parent = None if not place else (place - reach + root) % world
    return TreeNeighbours(parent, tuple((child + root) % world for child in children))


@PROGRAMS
def tree(rank: int, world: int, size: int, chunk_bytes: int) -> Program:
    """Every rank adds its own part and then those of its children, in the order of ranks; the sum
    of rank 0 goes down again. Chunk by chunk: one goes down while the next comes up.
    """
    draft, family = Draft(rank, world), binomial(rank, world)
    chunks = cut(of_input(0, size), chunk_bytes)
    added = dict[int, Steps]()
    for piece in range(len(chunks) + 1):
        if piece < len(chunks):
            added[piece] = climb(draft, family, chunks[piece], piece=piece)
        if piece:
            _down(draft, family, chunks[piece - 1], piece - 1, added[piece - 1])
    return draft.program()


def climb(draft: Draft, family: TreeNeighbours, own: Span, *, piece: int = NOT_REPLICATED) -> Steps:
    """Add a chunk of INPUT to those of the children; the root's sum is OUTPUT's.

    Returns the last step: the sum, or its Send to the parent.
    """
    parts = tuple(draft.scratch(own.size) for _ in family.children)
    known: Steps = ()
    for child, part in zip(family.children, parts, strict=True):
        known += draft.receive(child, part, origin=own.start)
    if family.parent is None:
        result = of_output(own.start, own.size)
        return draft.reduce(result, (own, *parts), after=known, last=True, piece=piece)
    if not parts:
        return draft.send(family.parent, own)
    added = draft.reduce(parts[0], (own, *parts), after=known)
    return draft.send(family.parent, parts[0], after=added, origin=own.start)


def _down(draft: Draft, family: TreeNeighbours, own: Span, piece: int, known: Steps) -> None:
    result = of_output(own.start, own.size)
    if family.parent is not None:
        known = draft.receive(family.parent, result, implies=known, piece=piece)
    for child in reversed(family.children):  # the one with most ranks below first
        draft.send(child, result, after=known)
