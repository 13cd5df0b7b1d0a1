"""All-to-all: a part from every rank to every rank."""

from dlcpd.schedules.builders.gather import Sizes, in_a_row
from dlcpd.schedules.draft import PROGRAMS, Draft, of_input
from dlcpd.schedules.model import Program


@PROGRAMS
def all_to_all(rank: int, sends: Sizes, receives: Sizes) -> Program:
    """INPUT is a part for every rank, OUTPUT one from every rank, each in the order of ranks.

    `sends` and `receives` are their sizes in bytes, which other ranks need not know: a
    mismatch shows as a transfer of another size, or without its other end. INPUT and OUTPUT
    are separate memory. The rank's part for itself has the same size in both.
    """
    draft, results = Draft(rank, len(sends)), in_a_row(receives)
    parts = [of_input(span.start, span.size) for span in in_a_row(sends)]
    for peer in draft.others:
        draft.send(peer, parts[peer])
    draft.copy(results[rank], parts[rank])
    for peer in reversed(draft.others):
        draft.receive(peer, results[peer])
    return draft.program(*draft.others)
