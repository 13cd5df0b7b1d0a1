"""All-reduce straight from rank to rank: `direct` for any size, `one_shot` for small ones."""

from dlcpd.schedules.draft import PROGRAMS, Draft, Steps, of_input, of_output
from dlcpd.schedules.layout import Chunk, layout
from dlcpd.schedules.model import Program


@PROGRAMS
def direct(rank: int, world: int, size: int, chunk_bytes: int, computes: bool = False) -> Program:
    """Reduce-scatter to the owners of `layout`, in the order of ranks, then all-gather.

    Contributions are lossy; results are complete, and sent by the rank that added them, so
    that all ranks have the same bytes. A result acknowledges the contribution to it.
    Results follow one chunk behind the contributions: while the last chunk is reduced,
    the result of the one before travels.

    `computes`: the client of the owner computes its results from the sums. A sum then replaces the
    owner's contribution in INPUT, which no other rank reads.
    """
    owned = [layout(size, world, chunk_bytes).owned_by(owner) for owner in range(world)]
    draft, owed = Draft(rank, world), dict[Chunk, Steps]()  # Send of the contribution
    reduced = dict[Chunk, Steps]()
    for row in range(max(map(len, owned)) + 1):
        for peer in draft.others:
            for chunk in owned[peer][row : row + 1]:
                owed[chunk] = draft.send(peer, of_input(chunk.start, chunk.size), lossy=True)
        for chunk in owned[rank][row : row + 1]:
            own, result = of_input(chunk.start, chunk.size), of_output(chunk.start, chunk.size)
            if computes:
                added = draft.reduce_from_all(own, own, lossy=True)
                reduced[chunk] = draft.compute(
                    chunk.start, chunk.size, after=added, piece=chunk.index
                )
            else:
                reduced[chunk] = draft.reduce_from_all(result, own, lossy=True, piece=chunk.index)
        if row:
            before = [chunk for chunks in owned for chunk in chunks[row - 1 : row]]
            _all_gather(draft, before, reduced, owed)
    return draft.program(*draft.others)


def _all_gather(
    draft: Draft, chunks: list[Chunk], reduced: dict[Chunk, Steps], owed: dict[Chunk, Steps]
) -> None:
    """Every owner of a chunk sends its result to all others."""
    for chunk in chunks:
        result = of_output(chunk.start, chunk.size)
        if chunk.owner == draft.rank:
            for peer in draft.others:
                draft.send(peer, result, after=reduced[chunk])
        else:
            draft.receive(chunk.owner, result, implies=owed[chunk], piece=chunk.index)


@PROGRAMS
def one_shot(rank: int, world: int, size: int) -> Program:
    """Every rank sends its contribution to every other, and each reduces in the order of ranks.

    One network step, where reduce-scatter and all-gather are two. Ranks send a copy: a peer
    may need a retransmission after the result has overwritten the contribution.
    """
    draft = Draft(rank, world)
    own = draft.scratch(size)
    copied = draft.copy(own, of_input(0, size))
    for peer in draft.others:
        draft.send(peer, own, after=copied)
    draft.reduce_from_all(of_output(0, size), own, after=copied, piece=0)
    return draft.program(*draft.others)
