"""One-shot all-reduce, for tensors so small that a wake-up costs more than their bytes.

Every rank sends its whole contribution to every other, and each reduces all of them in
rank order: one network step, where reduce-scatter and all-gather are two. Nothing may be
missing, so all ranks compute the same from the same parts (P2). Ranks send a copy of
their contribution, since a peer may want it again after the result has overwritten it.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from dlcpd.collectives.layout import Chunk
from dlcpd.collectives.reduction import SMALL, Reduction, listed
from dlcpd.contract.traffic import DROP_RANKS, PROTECTED
from dlcpd.core.bitmap import Segments
from dlcpd.core.datagram import Bytes
from dlcpd.core.events import Stats
from dlcpd.core.incoming import Incoming
from dlcpd.core.layers import MILLION
from dlcpd.core.packetizer import natural_order, segment_count
from dlcpd.core.path_mtu import BASE
from dlcpd.core.receiver import ChunkReceiver
from dlcpd.core.reduce import reduce_in_rank_order
from dlcpd.core.sender import ChunkSender, Key
from dlcpd.core.session import Session
from dlcpd.core.wire import Kind

MAX_FAN_IN: Final = 64 << 10  # bytes that the others send one rank at once: a port holds more


@dataclass(slots=True, eq=False)
class OneShot(Reduction):
    """All-reduce in one step. There is one chunk, and every rank owns it."""

    _chunk: Chunk = field(init=False)
    _sent: Bytes = field(init=False)  # what this rank contributes
    _parts: dict[int, Incoming] = field(default_factory=dict)  # by rank
    _settled: set[int] = field(default_factory=set)
    _waiting: set[int] = field(default_factory=set)  # ranks that may still ask for our part

    @staticmethod
    def suits(size: int, max_loss: float, world_size: int) -> bool:
        """Whether an operation of `size` bytes goes this way: equal on every rank.

        Not where the policy would let a segment go missing: each rank might miss another.
        """
        small = size <= SMALL and size * (world_size - 1) <= MAX_FAN_IN
        segments = segment_count(size, BASE)  # whatever the paths carry
        return small and round(max_loss * MILLION) * segments < MILLION

    # --- life -------------------------------------------------------------------------

    def start(self, session: Session, now: float) -> None:
        """Bring back what was given up before, and push to every rank."""
        self._begin(session)
        self._chunk = Chunk(0, session.rank, 0, len(self.memory))
        self._sent = self.memory.copy()
        self._waiting = set(session.flows)
        for rank in session.flows:  # small as it is, it goes out with READY
            self._push(rank)

    def _contributions(self, rank: int) -> list[ChunkSender]:
        size = self.out_sizes[rank]
        count = segment_count(len(self._sent), size)
        tags = np.full(count, self._layers.most_urgent * DROP_RANKS + PROTECTED, np.uint8)
        return [
            ChunkSender(
                (self.number, Kind.PUSH, 0), self._sent, 0, size, tags,
                natural_order(count),
            )
        ]  # fmt: skip

    # --- data in ------------------------------------------------------------------------

    def open_incoming(self, rank: int, key: Key, now: float) -> Incoming | str:
        """Where a contribution goes; a reason to discard when it may not come."""
        _, kind, index = key
        if kind is not Kind.PUSH or index:
            return "chunk"
        if rank not in self.ready_ranks:
            return "unready"  # nothing counts before both have agreed on what it is
        if rank in self._settled:
            return "duplicate"
        count = segment_count(len(self._sent), self.in_sizes[rank])
        receiver = ChunkReceiver(count, self._layers.most_urgent)
        buffer = np.empty_like(self._sent)
        self._parts[rank] = Incoming(key, rank, receiver, buffer, self.in_sizes[rank])
        return self._parts[rank]

    def on_received(self, incoming: Incoming, now: float) -> None:
        """The contribution of a rank is here."""
        self._settled.add(incoming.rank)
        if len(self._settled) == self._session.world_size - 1:
            self._reduce()

    def _reduce(self) -> None:
        rank, world_size = self._session.rank, self._session.world_size
        parts = [
            self.memory if other == rank else self._parts[other].buffer
            for other in range(world_size)
        ]
        reduce_in_rank_order(parts, rank, self.ready.dtype, self.ready.reduce)
        self._parts.clear()  # their memory, while peers may still ask for ours
        self._add_digest(self._chunk)
        senders = [sender for pushes in self._pushes.values() for sender in pushes]
        stats = Stats(
            sent=sum(s.segments for s in senders),  # some may still wait for their turn
            repaired=sum(s.repaired for s in senders),
            returned=self._returned(),
        )
        self._finish(stats, released=not self._waiting)

    # --- verdicts of peers -----------------------------------------------------------------

    def on_acknowledged(self, rank: int, sender: ChunkSender, now: float) -> None:
        """A peer has our contribution."""
        self._waiting.discard(rank)
        if self.done and not self._waiting:
            self._session.released(self.number)

    def on_given_up(self, rank: int, sender: ChunkSender, missing: Segments) -> Segments:
        """Nothing may be, whatever a peer asks."""
        return missing

    # --- ends ------------------------------------------------------------------------------

    def needs(self, rank: int) -> bool:
        """Whether this operation cannot end without `rank`."""
        return rank not in self._settled

    def waiting_for(self) -> str:
        """For errors: which ranks owe what."""
        ranks = set(self._session.flows)
        if missing := ranks - self.ready_ranks:
            return f"rank(s) {listed(missing)} to submit operation {self.number}"
        if owing := ranks - self._settled:
            return f"contributions of rank(s) {listed(owing)} to operation {self.number}"
        return f"rank(s) {listed(self._waiting)} to take our part of operation {self.number}"
