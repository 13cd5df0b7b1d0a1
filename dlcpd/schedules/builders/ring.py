"""All-reduce around a ring: every rank exchanges data with its two neighbours only."""

from dataclasses import dataclass

from dlcpd.schedules.draft import PROGRAMS, Draft, Steps, of_input, of_output
from dlcpd.schedules.layout import Chunk, layout
from dlcpd.schedules.model import Program


@dataclass(frozen=True, slots=True)
class _Neighbours:
    """The ranks from which a rank receives, and to which it sends."""

    before: int
    behind: int


@PROGRAMS
def ring(
    rank: int, world: int, size: int, chunk_bytes: int, order: tuple[int, ...] = ()
) -> Program:
    """A chunk starts at the rank after its owner and gathers contributions on its way round
    to the owner; then the result goes round. `order`: ranks round the ring; empty: 0, 1, ...

    The order of addition is that of the ring, from the rank after the owner to the owner, so
    all ranks have the same bytes, but not those of the order of ranks.
    """
    order = order or tuple(range(world))
    place = order.index(rank)
    near = _Neighbours(order[place - 1], order[(place + 1) % world])
    draft, shards = Draft(rank, world), layout(size, world, chunk_bytes)
    sent = dict[Chunk, Steps]()  # Send of the contribution that starts a chunk
    for hop in range(2 * world - 1):  # of the chunk that is here in that round
        for chunk in shards.owned_by(order[(place - 1 - hop) % world]):
            if hop < world:
                _gather(draft, near, chunk, hop, sent)
            else:
                _return(draft, near, chunk, sent.get(chunk, ()))
    return draft.program()


def _gather(
    draft: Draft, near: _Neighbours, chunk: Chunk, hop: int, sent: dict[Chunk, Steps]
) -> None:
    """Add this rank's contribution, and pass the sum on."""
    own, result = of_input(chunk.start, chunk.size), of_output(chunk.start, chunk.size)
    if draft.world == 1:
        draft.reduce(result, (own,), last=True, piece=chunk.index)
    elif not hop:
        sent[chunk] = draft.send(near.behind, own)
    else:
        partial = draft.scratch(chunk.size)
        arrived = draft.receive(near.before, partial, origin=chunk.start)
        if hop == draft.world - 1:
            operands = (partial, own)
            added = draft.reduce(result, operands, after=arrived, last=True, piece=chunk.index)
            draft.send(near.behind, result, after=added)
        else:
            added = draft.reduce(partial, (partial, own), after=arrived)
            draft.send(near.behind, partial, after=added, origin=chunk.start)


def _return(draft: Draft, near: _Neighbours, chunk: Chunk, sent: Steps) -> None:
    """Take the result, and pass it on unless the next rank is its owner."""
    result = of_output(chunk.start, chunk.size)
    # in place it overwrites data that this rank sent, which must have arrived
    implies, after = (sent, ()) if near.before == near.behind else ((), sent)
    arrived = draft.receive(near.before, result, after=after, implies=implies, piece=chunk.index)
    if near.behind != chunk.owner:
        draft.send(near.behind, result, after=arrived)
