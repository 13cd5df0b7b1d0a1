"""What every all-reduce does, however its bytes travel: begin, push, digest, put back."""

from dataclasses import dataclass, field
from typing import Final

from dlcpd.collectives.layout import Chunk
from dlcpd.core.control import Ready
from dlcpd.core.datagram import Bytes
from dlcpd.core.digests import digest_bytes
from dlcpd.core.events import Stats
from dlcpd.core.layers import Layers
from dlcpd.core.residual import Hole, add_back
from dlcpd.core.sender import ChunkSender
from dlcpd.core.session import Session

SMALL: Final = 16 << 10  # bytes; under the smallest congestion window, so it leaves at once


@dataclass(frozen=True, slots=True)
class Spec:
    """What the client asked for, beside the memory."""

    number: int
    name: str  # keys the residual; empty in exact mode
    ready: Ready
    deadline: float  # absolute
    in_place: bool
    critical: list[list[int]] = field(default_factory=list)
    digest_every: int = 0  # 1 of so many chunks enters the replica digest; 0 = none
    seed: int = 0  # of the send order
    layers: list[list[int]] = field(default_factory=list)  # as in Submit
    drop_ranks: str = "magnitude"  # what segments get theirs by; "chance", or "none"
    give_up: bool = True  # False: whatever the bound, nothing here is given up


@dataclass(slots=True, eq=False)
class Reduction:
    """One all-reduce on one rank. `memory` holds the contribution and then the result."""

    spec: Spec
    memory: Bytes
    ready_ranks: set[int] = field(default_factory=set)
    out_sizes: dict[int, int] = field(default_factory=dict)  # by rank: our segments towards it
    in_sizes: dict[int, int] = field(default_factory=dict)  # by rank: its segments towards us
    _session: Session = field(init=False)
    _pushes: dict[int, list[ChunkSender]] = field(default_factory=dict)  # by receiving rank
    _returned_holes: list[Hole] = field(default_factory=list)
    _digest: int = 0
    done: bool = False  # the result stands

    @property
    def number(self) -> int:
        return self.spec.number

    @property
    def ready(self) -> Ready:
        return self.spec.ready

    @property
    def deadline(self) -> float:
        return self.spec.deadline

    @property
    def _residual_key(self) -> tuple[str, str, int]:
        return (self.spec.name, self.ready.dtype, self.ready.count)

    def _begin(self, session: Session) -> None:
        """Join a session, and bring back what was given up before."""
        self._session = session
        if self.ready.fill == "residual" and self.spec.name:
            self._returned_holes = session.residuals.take(self._residual_key)
            add_back(self.memory, self._returned_holes, self.ready.dtype)

    def on_peer_ready(self, rank: int, now: float, *, late: bool) -> None:
        """Push this rank's contributions to `rank`; again if they came too early."""
        self.ready_ranks.add(rank)
        if rank not in self._pushes:
            self._push(rank)
        elif late:
            for sender in self._pushes[rank]:
                self._session.resend(rank, sender)

    def _push(self, rank: int) -> None:
        self._pushes[rank] = self._contributions(rank)
        for sender in self._pushes[rank]:
            self._session.send(rank, sender)

    def _contributions(self, rank: int) -> list[ChunkSender]:
        """What `rank` needs of us."""
        raise NotImplementedError

    @property
    def _layers(self) -> Layers:
        ready = self.ready
        return Layers.new(self.spec.layers, ready.traffic_class, ready.max_loss)

    def _bytes(self, chunk: Chunk) -> Bytes:
        return self.memory[chunk.start : chunk.start + chunk.size]

    def _add_digest(self, chunk: Chunk) -> None:
        every = self.spec.digest_every
        if every and (chunk.index + self.number) % every == 0:
            part = digest_bytes(self._bytes(chunk), chunk.index)
            self._digest = (self._digest + part) & 0xFFFFFFFFFFFFFFFF

    def _finish(self, stats: Stats, *, released: bool) -> None:
        """The result stands."""
        self.done = True
        digest = self._digest if self.spec.digest_every else None
        self._session.done(self.number, released=released, stats=stats, digest=digest)

    def on_failed(self) -> None:
        """Put back what this operation had taken out of the residual: nothing is lost for ever."""
        if self._returned_holes:
            self._session.residuals.put(self._residual_key, self._returned_holes)

    def _returned(self) -> int:
        return sum(len(hole.segments) for hole in self._returned_holes)


def listed(ranks: "set[int] | list[int]") -> str:
    """For errors."""
    return ", ".join(str(rank) for rank in sorted(ranks))
