"""Broadcast: every rank gets the data of the root."""

from dlcpd.schedules.builders.tree import TreeNeighbours, binomial
from dlcpd.schedules.draft import PROGRAMS, Draft, Steps, cut, of_input, of_output
from dlcpd.schedules.model import Program


@PROGRAMS
def direct(rank: int, world: int, size: int, root: int, chunk_bytes: int) -> Program:
    """The root sends to every rank. Only the root has an INPUT."""
    draft = Draft(rank, world)
    family = TreeNeighbours(None, draft.others) if rank == root else TreeNeighbours(root, ())
    return _pass_down(draft, family, size, chunk_bytes)


@PROGRAMS
def tree(rank: int, world: int, size: int, root: int, chunk_bytes: int) -> Program:
    """The same by a binomial tree, chunk by chunk: no rank sends to more than log2(world)."""
    return _pass_down(Draft(rank, world), binomial(rank, world, root), size, chunk_bytes)


def _pass_down(draft: Draft, family: TreeNeighbours, size: int, chunk_bytes: int) -> Program:
    for piece, result in enumerate(cut(of_output(0, size), chunk_bytes)):
        source, known = of_input(result.start, result.size), Steps()
        if family.parent is not None:
            source = result
            known = draft.receive(family.parent, result, piece=piece)
        for child in reversed(family.children):  # in a tree, first the one with most ranks below it
            draft.send(child, source, after=known)
        if family.parent is None:
            draft.copy(result, source, piece=piece)
    return draft.program(*draft.others)
