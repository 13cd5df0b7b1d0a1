"""All-reduce around a ring: every rank exchanges data with its two neighbours only."""

from dlcpd.schedules.draft import PROGRAMS, Draft, Steps, of_input, of_output
from dlcpd.schedules.layout import Chunk, layout
from dlcpd.schedules.model import Program


@PROGRAMS
def ring(rank: int, world: int, size: int, chunk_bytes: int) -> Program:
    """A chunk starts at the rank after its owner and gathers contributions on its way round
    to the owner; then the result goes round.

    The order of addition is that of the ring, from the rank after the owner to the owner, so
    all ranks have the same bytes, but not those of the order of ranks.
    """
    draft, shards = Draft(rank, world), layout(size, world, chunk_bytes)
    sent = dict[Chunk, Steps]()  # Send of the contribution that starts a chunk
    for hop in range(2 * world - 1):  # of the chunk that is here in that round
        for chunk in shards.owned_by((rank - 1 - hop) % world):
            if hop < world:
                _gather(draft, chunk, hop, sent)
            else:
                _return(draft, chunk, sent.get(chunk, ()))
    return draft.program()


def _gather(draft: Draft, chunk: Chunk, hop: int, sent: dict[Chunk, Steps]) -> None:
    """Add this rank's contribution, and pass the sum on."""
    before, behind = (draft.rank - 1) % draft.world, (draft.rank + 1) % draft.world
    own, result = of_input(chunk.start, chunk.size), of_output(chunk.start, chunk.size)
    if draft.world == 1:
        draft.reduce(result, (own,), last=True, piece=chunk.index)
    elif not hop:
        sent[chunk] = draft.send(behind, own)
    else:
        partial = draft.scratch(chunk.size)
        arrived = draft.receive(before, partial, origin=chunk.start)
        if hop == draft.world - 1:
            operands = (partial, own)
            added = draft.reduce(result, operands, after=arrived, last=True, piece=chunk.index)
            draft.send(behind, result, after=added)
        else:
            added = draft.reduce(partial, (partial, own), after=arrived)
            draft.send(behind, partial, after=added, origin=chunk.start)


def _return(draft: Draft, chunk: Chunk, sent: Steps) -> None:
    """Take the result, and pass it on unless the next rank is its owner."""
    before, behind = (draft.rank - 1) % draft.world, (draft.rank + 1) % draft.world
    result = of_output(chunk.start, chunk.size)
    # in place it overwrites data that this rank sent, which must have arrived
    implies, after = (sent, ()) if before == behind else ((), sent)
    arrived = draft.receive(before, result, after=after, implies=implies, piece=chunk.index)
    if behind != chunk.owner:
        draft.send(behind, result, after=arrived)
