"""Point to point: one transfer, whose two ends are programs of their own."""

from functools import lru_cache

from dlcpd.schedules.draft import CACHED, Draft, of_input, of_output
from dlcpd.schedules.model import Program


@lru_cache(maxsize=CACHED)
def send(rank: int, peer: int, size: int) -> Program:
    """INPUT goes to `peer`."""
    draft = Draft(rank, max(rank, peer) + 1)
    draft.send(peer, of_input(0, size))
    return draft.program(peer)


@lru_cache(maxsize=CACHED)
def receive(rank: int, peer: int, size: int) -> Program:
    """OUTPUT comes from `peer`."""
    draft = Draft(rank, max(rank, peer) + 1)
    draft.receive(peer, of_output(0, size))
    return draft.program(peer)
