"""Point to point: one transfer, whose two ends are programs of their own."""

from dlcpd.schedules.draft import PROGRAMS, Draft, of_input, of_output
from dlcpd.schedules.model import Program


@PROGRAMS
def send(rank: int, peer: int, size: int) -> Program:
    """INPUT goes to `peer`."""
    draft = Draft(rank, max(rank, peer) + 1)
    draft.send(peer, of_input(0, size))
    return draft.program(peer)


@PROGRAMS
def receive(rank: int, peer: int, size: int) -> Program:
    """OUTPUT comes from `peer`."""
    draft = Draft(rank, max(rank, peer) + 1)
    draft.receive(peer, of_output(0, size))
    return draft.program(peer)
