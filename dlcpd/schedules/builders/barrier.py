"""Barrier: no rank continues before all have arrived."""

from dlcpd.schedules.draft import PROGRAMS, Draft
from dlcpd.schedules.model import Program


@PROGRAMS
def barrier(rank: int, world: int) -> Program:
    """No steps: the barrier ends when all peers have met."""
    draft = Draft(rank, world)
    return draft.program(*draft.others)
