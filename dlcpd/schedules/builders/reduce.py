"""Reduce: the sum of all ranks, on the root alone."""

from dlcpd.schedules.builders.tree import binomial, climb
from dlcpd.schedules.draft import PROGRAMS, Draft, cut, of_input, of_output
from dlcpd.schedules.model import Program


@PROGRAMS
def direct(rank: int, world: int, size: int, root: int, chunk_bytes: int) -> Program:
    """Every rank sends to the root, which adds in the order of ranks. Only it has an OUTPUT."""
    draft = Draft(rank, world)
    for own in cut(of_input(0, size), chunk_bytes):
        if rank == root:
            draft.reduce_from_all(of_output(own.start, own.size), own)
        else:
            draft.send(root, own)
    return draft.program()


@PROGRAMS
def tree(rank: int, world: int, size: int, root: int, chunk_bytes: int) -> Program:
    """The same by a binomial tree: the order of addition is that of ranks from the root on."""
    draft, family = Draft(rank, world), binomial(rank, world, root)
    for own in cut(of_input(0, size), chunk_bytes):
        climb(draft, family, own)
    return draft.program()
