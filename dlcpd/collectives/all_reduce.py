"""All-reduce: direct reduce-scatter to owners (bounded), then all-gather (complete).

Every chunk has one owner. The other ranks push their contributions to it; it adds them
in rank order and every rank pulls the same bytes, so replicas cannot diverge (P2).
A contribution in the owner's own tensor is overwritten by the result in place; one in a
pusher's tensor by the pulled result, which the owner sends only when that pusher's part
is settled.
"""

import random
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.collectives.layout import Chunk, Layout, layout
from dlcpd.collectives.reduction import SMALL, Reduction, listed
from dlcpd.contract.traffic import DROP_RANKS, PROTECTED
from dlcpd.core.bitmap import Bits, Segments
from dlcpd.core.budget import Budget
from dlcpd.core.datagram import Bytes
from dlcpd.core.events import Stats
from dlcpd.core.incoming import Incoming
from dlcpd.core.layers import MILLION, Layers
from dlcpd.core.magnitude import OperationEnergy, energies
from dlcpd.core.packetizer import (
    by_tag,
    critical_segments,
    natural_order,
    rotated_order,
    segment_count,
)
from dlcpd.core.receiver import ChunkReceiver
from dlcpd.core.reduce import reduce_in_rank_order
from dlcpd.core.residual import Hole, cut
from dlcpd.core.sender import ChunkSender, Key
from dlcpd.core.session import LedgerRow, Session
from dlcpd.core.wire import Kind

_PROTECTED: Final = np.uint8(PROTECTED)


@dataclass(slots=True, eq=False)
class Gathering:
    """A chunk this rank owns, while contributions come in."""

    chunk: Chunk
    parts: dict[int, Incoming] = field(default_factory=dict)  # by rank
    settled: set[int] = field(default_factory=set)


class ScratchPool:
    """Chunk-sized buffers for contributions, used again while they are warm in the cache."""

    def __init__(self, chunk_size: int) -> None:
        self.chunk_size = chunk_size
        self._free: list[Bytes] = []

    def take(self) -> Bytes:
        return self._free.pop() if self._free else np.empty(self.chunk_size, np.uint8)

    def give(self, buffer: Bytes) -> None:
        if len(self._free) < 16:  # 32 MB kept warm; a burst beyond it is returned to the system
            self._free.append(buffer)


@dataclass(slots=True, eq=False)
class AllReduce(Reduction):
    """All-reduce in two steps, of any size."""

    scratch: ScratchPool = field(kw_only=True)
    _layout: Layout = field(init=False)
    _gathering: dict[int, Gathering] = field(init=False)  # own chunks not yet reduced
    _to_pull: set[int] = field(init=False)  # chunks whose result is not here yet
    _pulls_out: int = 0  # own chunks times peers whose pull is not acknowledged
    _holes: dict[int, Hole] = field(default_factory=dict)  # by chunk: what owners go without
    _repaired_pulls: int = 0
    _lost: int = 0
    _layer_table: Layers = field(init=False)
    _energy: OperationEnergy = field(init=False)  # of what this rank contributes, where it may lose

    # --- life -------------------------------------------------------------------------

    def start(self, session: Session, now: float) -> None:
        """Bring back what was given up before, and lay out the chunks."""
        self._begin(session)
        self._layout = layout(len(self.memory), session.world_size, self.scratch.chunk_size)
        self._layer_table = self._layers
        own = self._layout.owned_by(session.rank)
        self._gathering = {chunk.index: Gathering(chunk) for chunk in own}
        self._to_pull = {c.index for c in self._layout.chunks if c.owner != session.rank}
        self._pulls_out = len(own) * (session.world_size - 1)
        # A small contribution goes out with READY: in step, as ranks of a job mostly are, the peer
        # can take it. One that cannot keeps it, or says by a LATE READY that it did not.
        if not self._layer_table.lossless:
            self._energy = self._measure(session.rank)
        for rank in session.flows:
            if sum(chunk.size for chunk in self._layout.owned_by(rank)) <= SMALL:
                self._push(rank)

    def _contributions(self, rank: int) -> list[ChunkSender]:
        return [self._contribution(chunk) for chunk in self._layout.owned_by(rank)]

    def _contribution(self, chunk: Chunk) -> ChunkSender:
        """Our part of a chunk that another rank owns."""
        if self._layer_table.lossless:
            return self._chunk_sender(Kind.PUSH, chunk, chunk.owner)
        seed = self.spec.seed ^ self.number << 20 ^ chunk.index
        size = self.out_sizes[chunk.owner]
        short = bool(chunk.size % size)
        segments = segment_count(chunk.size, size)
        # P5: rotate who comes last
        order = rotated_order(segments, short_tail=short, rng=random.Random(seed))  # noqa: S311
        budget = self._budget(chunk, size)
        ranks = self._drop_ranks(chunk.index, seed, budget)
        return self._chunk_sender(
            Kind.PUSH, chunk, chunk.owner, order=order, drop_ranks=ranks,
            weight=self._energy.of(chunk.index), budget=budget,
        )  # fmt: skip

    def _drop_ranks(
        self, chunk: int, seed: int, budget: Budget | None
    ) -> NDArray[np.uint8] | np.uint8:
        if budget is None or self.spec.drop_ranks == "none":
            return _PROTECTED
        by_chance = self.spec.drop_ranks == "chance"
        energy = self._energy
        ranks = energy.shuffled_ranks(chunk, seed) if by_chance else energy.drop_ranks(chunk)
        ranks[budget.untouchable] = _PROTECTED
        return ranks

    def _chunk_sender(
        self, kind: Kind, chunk: Chunk, rank: int, *, order: Segments | None = None,
        drop_ranks: NDArray[np.uint8] | np.uint8 = _PROTECTED, **options: Any,
    ) -> ChunkSender:  # fmt: skip
        size = self.out_sizes[rank]
        classes = self._layer_table.classes_of(chunk.start, chunk.size, size)
        tags = classes * np.uint8(DROP_RANKS) + drop_ranks
        if order is None:
            order = natural_order(len(tags))
        return ChunkSender(
            (self.number, kind, chunk.index), self._bytes(chunk), chunk.start, size,
            tags, by_tag(order, tags), urgent=kind is Kind.PULL and self.spec.in_place, **options,
        )  # fmt: skip

    def _measure(self, rank: int) -> OperationEnergy:
        return OperationEnergy(
            {
                chunk.index: energies(
                    self._bytes(chunk), self.ready.dtype, self.out_sizes[chunk.owner]
                )
                for chunk in self._layout.chunks
                if chunk.owner != rank
            },
            float(self._layer_table.bounds.max()) / MILLION,
        )

    # --- data in ------------------------------------------------------------------------

    def open_incoming(self, rank: int, key: Key, now: float) -> Incoming | str:
        """Where a chunk from `rank` goes; a reason to discard when it may not come."""
        _, kind, index = key
        if index >= len(self._layout.chunks):
            return "chunk"
        if rank not in self.ready_ranks:
            return "unready"  # nothing counts before both have agreed on what it is
        chunk = self._layout.chunks[index]
        if kind is Kind.PULL:
            if chunk.owner != rank:
                return "chunk"
            if index not in self._to_pull:
                return "duplicate"
            size = self.in_sizes[rank]
            receiver = ChunkReceiver(segment_count(chunk.size, size), self._last_class(chunk, size))
            # the owner sends results only when it is done with our part of the chunk
            self._session.acknowledge(rank, (self.number, Kind.PUSH, index), now)
            return Incoming(key, rank, receiver, self._bytes(chunk), size)
        if chunk.owner != self._session.rank:
            return "chunk"
        gathering = self._gathering.get(index)
        if gathering is None or rank in gathering.settled:
            return "duplicate"
        return self._open_part(gathering, rank, key)

    def _open_part(self, gathering: Gathering, rank: int, key: Key) -> Incoming:
        chunk = gathering.chunk
        size = self.in_sizes[rank]
        segments = segment_count(chunk.size, size)
        receiver = ChunkReceiver(segments, self._last_class(chunk, size), self._budget(chunk, size))
        buffer = self.scratch.take()[: chunk.size]
        part = Incoming(key, rank, receiver, buffer, size)
        gathering.parts[rank] = part
        return part

    def _last_class(self, chunk: Chunk, segment_size: int) -> int:
        """The class that comes last of a chunk."""
        return self._layer_table.last_class(chunk.start, chunk.size, segment_size)

    def _budget(self, chunk: Chunk, segment_size: int) -> Budget | None:
        """What one sender may be missing of a chunk."""
        if self._layer_table.lossless or not self.spec.give_up:
            return None
        table = self._layer_table
        rows = table.of_segments(chunk.start, chunk.size, segment_size)
        keys = table.classes[rows].astype(np.int64) << 32 | table.bounds[rows]
        critical = critical_segments(self.spec.critical, chunk.start, chunk.size, segment_size)
        return Budget.new(keys, critical)

    def on_received(self, incoming: Incoming, now: float) -> None:
        """A contribution is settled, or a result is here."""
        if incoming.key[1] is Kind.PULL:
            self._to_pull.remove(incoming.key[2])
            self._add_digest(self._layout.chunks[incoming.key[2]])
            self._finish_if_done()
            return
        gathering = self._gathering[incoming.key[2]]
        gathering.settled.add(incoming.rank)
        if incoming.receiver.missing:
            self._book_loss(gathering, incoming)
        if len(gathering.settled) == self._session.world_size - 1:
            self._reduce(gathering)

    def _book_loss(self, gathering: Gathering, incoming: Incoming) -> None:
        """The sender keeps the missing segments: here they count as zero."""
        missing, size = np.flatnonzero(~incoming.receiver.received), incoming.segment_size
        for segment in missing.tolist():
            incoming.buffer[segment * size : (segment + 1) * size] = 0
        self._lost += len(missing)
        self._session.record(
            LedgerRow(self.number, self.spec.name, incoming.rank, self._session.rank,
                      gathering.chunk.index, len(missing), {})
        )  # fmt: skip

    def _reduce(self, gathering: Gathering) -> None:
        chunk, session = gathering.chunk, self._session
        del self._gathering[chunk.index]
        own = self._bytes(chunk)
        parts = [
            own if rank == session.rank else gathering.parts[rank].buffer
            for rank in range(session.world_size)
        ]
        reduce_in_rank_order(parts, session.rank, self.ready.dtype, self.ready.reduce)
        for part in gathering.parts.values():
            self.scratch.give(part.buffer.base if part.buffer.base is not None else part.buffer)
        self._add_digest(chunk)
        for step in range(1, session.world_size):  # staggered: no receiver is hit by all at once
            rank = (session.rank + step) % session.world_size
            session.send(rank, self._chunk_sender(Kind.PULL, chunk, rank))
        self._finish_if_done()

    # --- verdicts of peers -----------------------------------------------------------------

    def on_acknowledged(self, rank: int, sender: ChunkSender, now: float) -> None:
        """A peer is content with a chunk of ours."""
        if sender.key[1] is Kind.PULL:
            self._pulls_out -= 1
            self._repaired_pulls += sender.repaired
            if self.done and not self._pulls_out:
                self._session.released(self.number)
            else:
                self._finish_if_done()

    def on_given_up(self, rank: int, sender: ChunkSender, missing: Segments) -> Segments:
        """The owner would go without `missing`: keep them, unless that is beyond the bound, of
        segments or of energy, or they hold NaN or Inf.

        Those must arrive, so that every rank's loss scaler sees the overflow; kept as
        residual they would poison the next step instead.
        """
        if sender.budget is None or not sender.budget.covers(_bits(missing, sender.segments)):
            return missing  # no more than the bound, whatever a peer asks
        known = self._holes.get(sender.key[2])
        if not len(missing) or (known and np.array_equal(known.segments, missing)):
            return np.empty(0, np.intp)  # our ACK was lost: agree again, book once
        assert sender.weight is not None  # noqa: S101  # what may lose anything was measured
        too_much = self._energy.beyond(missing, sender.weight, self.ready.max_loss)
        if len(too_much):
            self._session.count("energy_veto", len(too_much))
            return too_much
        self._energy.spend(sender.weight[missing])
        self._holes[sender.key[2]] = cut(sender.payload, sender.start, missing, sender.segment_size)
        paths = np.unique(sender.path_of[missing], return_counts=True)
        self._session.record(
            LedgerRow(self.number, self.spec.name, self._session.rank, rank, sender.key[2],
                      len(missing), dict(zip(*(x.tolist() for x in paths), strict=True)))
        )  # fmt: skip
        return np.empty(0, np.intp)

    # --- ends ------------------------------------------------------------------------------

    def _finish_if_done(self) -> None:
        if self.done or self._to_pull or self._gathering:
            return
        if self.spec.in_place and self._pulls_out:
            return
        if self.ready.fill == "residual":
            self._session.residuals.put(self._residual_key, list(self._holes.values()))
        self._finish(self._final_stats(), released=not self._pulls_out)

    def _final_stats(self) -> Stats:
        pushes = [sender for senders in self._pushes.values() for sender in senders]
        return Stats(
            sent=sum(s.sent for s in pushes),
            repaired=sum(s.repaired for s in pushes) + self._repaired_pulls,
            given_up=sum(len(h.segments) for h in self._holes.values()),
            returned=self._returned(),
            lost=self._lost,
            energy=0.0 if self._layer_table.lossless else self._energy.spent_share,
        )

    def needs(self, rank: int) -> bool:
        """Whether this operation cannot end without `rank`, or `rank` without us."""
        owned = any(self._layout.chunks[index].owner == rank for index in self._to_pull)
        return rank not in self.ready_ranks or bool(self._gathering) or owned

    def waiting_for(self) -> str:
        """For errors: which ranks owe what."""
        session = self._session
        missing = [r for r in session.flows if r not in self.ready_ranks]
        if missing:
            return f"rank(s) {listed(missing)} to submit operation {self.number}"
        owing = {r for g in self._gathering.values() for r in session.flows if r not in g.settled}
        if owing:
            return f"contributions of rank(s) {listed(owing)} to operation {self.number}"
        owners = {self._layout.chunks[c].owner for c in self._to_pull}
        if owners:
            return f"results of rank(s) {listed(owners)} of operation {self.number}"
        return f"{self._pulls_out} acknowledgements of results of operation {self.number}"


def _bits(segments: Segments, count: int) -> Bits:
    bits = np.zeros(count, bool)
    bits[segments] = True
    return bits
