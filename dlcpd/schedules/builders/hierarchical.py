"""All-reduce over hosts with several ranks each: few bytes between the hosts.

The ranks of a host reduce among themselves, each a part of the tensor, its lane; then the
ranks of one lane, one per host, reduce the sums of the hosts; then every host gathers. With
n ranks on its host, a rank sends 1/n of the bytes that `direct` sends to other hosts. There
are as many lanes as the smallest host has ranks; further ranks only contribute and receive.
"""

from dataclasses import dataclass, field

from dlcpd.schedules.draft import PROGRAMS, Draft, Steps, of_input, of_output
from dlcpd.schedules.layout import Chunk, layout
from dlcpd.schedules.model import NOT_REPLICATED, Program, Span

Hosts = tuple[tuple[int, ...], ...]  # the ranks of each host; all ranks, each once


@PROGRAMS
def hierarchical(
    rank: int, hosts: Hosts, size: int, chunk_bytes: int, computes: bool = False
) -> Program:
    """Values are summed within each host, then over the hosts, both in the order of `hosts`.

    No transfer is lossy: between hosts each is a sum of many ranks. An average divides that sum by
    the smallest power of two that is no less than the ranks of the largest host.

    `computes`: the client of the owner computes its results from the sums. Sums, those of a host
    too, then replace the contribution in INPUT of the rank that adds them.
    """
    world, lanes = sum(map(len, hosts)), min(map(len, hosts))
    host = next(at for at, ranks in enumerate(hosts) if rank in ranks)
    shards = layout(size, lanes * len(hosts), chunk_bytes)
    owned = [shards.owned_by(owner) for owner in range(lanes * len(hosts))]
    write = _HierarchicalWriter(Draft(rank, world), hosts, host, lanes, computes)
    rows = max(map(len, owned))
    # every stage is one chunk behind the stage it waits for
    stages = (write.gather_here, write.reduce_between, write.return_between, write.return_here)
    for row in range(rows + len(stages) - 1):
        for behind, stage in enumerate(stages):
            if 0 <= row - behind < rows:
                for chunks in owned:
                    for chunk in chunks[row - behind : row - behind + 1]:
                        stage(chunk)
    return write.draft.program()


@dataclass(slots=True)
class _HierarchicalWriter:
    """Writes the program of one rank. `owner` of a chunk is its lane and its host in one number."""

    draft: Draft
    hosts: Hosts
    host: int  # of this rank
    lanes: int
    computes: bool
    _given: dict[Chunk, Steps] = field(default_factory=dict)  # Send of a part or of a host's sum
    _ready: dict[Chunk, Steps] = field(default_factory=dict)  # after these a sum may be sent

    @property
    def halvings(self) -> int:
        """Halvings with which the sum of a host fits in an average; equal on all ranks."""
        return (max(map(len, self.hosts)) - 1).bit_length()

    def collector(self, chunk: Chunk, host: int) -> int:
        """The rank of a host that reduces the host's parts of a chunk."""
        return self.hosts[host][chunk.owner // len(self.hosts)]

    def owner(self, chunk: Chunk) -> int:
        """The rank that reduces the parts of all hosts."""
        return self.collector(chunk, chunk.owner % len(self.hosts))

    def gather_here(self, chunk: Chunk) -> None:
        """The other ranks of this host send their parts to the collector, which adds them."""
        draft, ranks, collector = (
            self.draft,
            self.hosts[self.host],
            self.collector(chunk, self.host),
        )
        own = of_input(chunk.start, chunk.size)
        if draft.rank != collector:
            self._given[chunk] = draft.send(collector, own)
            return
        parts = {rank: draft.scratch(chunk.size) for rank in ranks if rank != collector}
        arrived: Steps = ()
        for rank, part in parts.items():
            arrived += draft.receive(rank, part, origin=chunk.start)
        operands = tuple(parts.get(rank, own) for rank in ranks)
        if len(self.hosts) == 1:
            self._finish(chunk, operands, arrived, halvings=0)
            return
        self._ready[chunk] = draft.reduce(
            self._sum(chunk), operands, after=arrived, halvings=self.halvings
        )

    def reduce_between(self, chunk: Chunk) -> None:
        """The collectors of the other hosts send their sums to the owner, which adds them."""
        draft, owner = self.draft, self.owner(chunk)
        here = self._sum(chunk)
        collectors = [self.collector(chunk, host) for host in range(len(self.hosts))]
        if draft.rank not in collectors or len(collectors) == 1:
            return
        if draft.rank != owner:
            self._given[chunk] = draft.send(owner, here, after=self._ready[chunk])
            return
        parts = {rank: draft.scratch(chunk.size) for rank in collectors if rank != owner}
        known = self._ready[chunk]
        for rank, part in parts.items():
            known += draft.receive(rank, part, origin=chunk.start)
        operands = tuple(parts.get(rank, here) for rank in collectors)
        self._finish(chunk, operands, known, halvings=self.halvings)

    def return_between(self, chunk: Chunk) -> None:
        """The owner sends the result to the collectors."""
        collectors = [self.collector(chunk, host) for host in range(len(self.hosts))]
        if self.draft.rank in collectors:
            others = [rank for rank in collectors if rank != self.owner(chunk)]
            self._return(chunk, self.owner(chunk), others)

    def return_here(self, chunk: Chunk) -> None:
        """The collector sends the result to the other ranks of its host."""
        collector = self.collector(chunk, self.host)
        others = [rank for rank in self.hosts[self.host] if rank != collector]
        self._return(chunk, collector, others)

    def _sum(self, chunk: Chunk) -> Span:
        """Where a sum of contributions is written."""
        place = of_input if self.computes else of_output
        return place(chunk.start, chunk.size)

    def _finish(
        self, chunk: Chunk, operands: tuple[Span, ...], after: Steps, *, halvings: int
    ) -> None:
        """Add up the result, or the sum from which the client computes it."""
        piece = NOT_REPLICATED if self.computes else chunk.index
        done = self.draft.reduce(
            self._sum(chunk), operands, after=after, last=True, piece=piece, halvings=halvings
        )
        if self.computes:
            done = self.draft.compute(chunk.start, chunk.size, after=done, piece=chunk.index)
        self._ready[chunk] = done

    def _return(self, chunk: Chunk, source: int, others: list[int]) -> None:
        draft, result = self.draft, of_output(chunk.start, chunk.size)
        if draft.rank == source:
            for rank in others:
                draft.send(rank, result, after=self._ready[chunk])
        else:
            given = self._given[chunk]
            self._ready[chunk] = draft.receive(source, result, implies=given, piece=chunk.index)
