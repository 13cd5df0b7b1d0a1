"""Barrier: no rank goes on before all are there."""

from dlcpd.schedules.draft import PROGRAMS, Draft
from dlcpd.schedules.model import Program


@PROGRAMS
def barrier(rank: int, world: int) -> Program:
    """No bytes: to meet the peers is all there is to do."""
    draft = Draft(rank, world)
    return draft.program(*draft.others)
