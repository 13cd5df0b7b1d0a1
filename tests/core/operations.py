"""An operation without a program, and a session for it: to test the parts of a session."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from dlcpd.core.paths.paths import Paths
from dlcpd.core.session.flow import Flow
from dlcpd.core.session.session import Session
from dlcpd.core.session.stream_ids import OperationId
from dlcpd.core.timers import TimerTable
from dlcpd.core.transfer.incoming import Incoming
from dlcpd.core.transfer.sender import TransferSender
from dlcpd.core.wire.bitmap import Segments
from dlcpd.core.wire.control import Ready
from dlcpd.core.wire.header import Flag, Header, Key, Kind

NOW = 100.0
SEGMENT = 128  # bytes
TEXT = "sum of float32[9]"


@dataclass(eq=False)
class PlainOperation:
    """Does nothing by itself; `calls` are the calls of the session, in order."""

    ticket: int
    peers: frozenset[int] = frozenset({1, 2})
    text: str = TEXT
    tag: int = 0
    deadline: float = NOW + 60.0
    id: OperationId = (0, 0, 0)
    begun: float = NOW
    ready_ranks: set[int] = field(default_factory=set)
    unbooked: set[tuple[int, Key]] = field(default_factory=set)
    done: bool = False
    released: bool = False
    needed: set[int] = field(default_factory=lambda: {1, 2})
    owed: set[int] = field(default_factory=set)
    calls: list[tuple[object, ...]] = field(default_factory=list)

    @property
    def label(self) -> str:
        return f"operation {self.ticket}"

    def ready_for(self, rank: int) -> Ready:
        return Ready(self.text, 0, SEGMENT, tag=self.tag)

    def meet(self, rank: int) -> None:
        self.peers = frozenset({rank})

    def start(self, session: Session, now: float) -> None:
        self.calls.append(("start", session.number, now))

    def on_peer_ready(self, rank: int, ready: Ready, now: float, *, late: bool) -> None:
        self.ready_ranks.add(rank)
        self.calls.append(("ready", rank, late))

    def on_carried(self, rank: int, data: bytes, now: float) -> None:
        self.calls.append(("carried", rank, data))

    def send_apart(self, rank: int) -> None:
        self.calls.append(("apart", rank))

    def on_known(self, rank: int) -> None:
        self.calls.append(("known", rank))

    def settle_implied(self, rank: int, key: Key, now: float) -> None:
        self.calls.append(("implied", rank, key))

    def on_left(self, rank: int, now: float) -> None:
        self.calls.append(("left", rank))

    def open_incoming(self, rank: int, key: Key) -> Incoming | str:
        self.calls.append(("open", rank, key))
        return "duplicate"

    def on_received(self, incoming: Incoming, now: float) -> None:
        self.calls.append(("received", incoming.rank))

    def on_acknowledged(self, rank: int, sender: TransferSender, now: float) -> None:
        self.calls.append(("acknowledged", rank))

    def on_waived(
        self, rank: int, sender: TransferSender, missing: Segments, *, told: bool
    ) -> Segments:
        self.calls.append(("waived", rank))
        return missing

    def on_computed(self, position: int, now: float, error: str = "") -> bool:
        self.calls.append(("computed", position, error))
        return False

    def closed(self) -> None:
        self.calls.append(("closed",))

    def needs(self, rank: int, *, submitted: bool) -> bool:
        return rank in (self.owed if submitted else self.needed)

    def awaited(self) -> tuple[frozenset[int], str]:
        return self.peers, f"{self.label} of ranks {sorted(self.peers)}"


def session(world: int = 3) -> Session:
    """Rank 0 of `world`, with flows and without an endpoint."""
    made = Session(7, 0, world, TimerTable(), Counter(), peer_timeout=2.0, suspect_after=0.5)
    for rank in range(1, world):
        made.flows[rank] = Flow(
            index=rank,
            session=made.callbacks,
            rank=rank,
            host=f"host{rank}",
            token_in=rank,
            token_out=rank << 8,
            segment_size=SEGMENT,
            window=1 << 20,
            grant=0,
            paths=Paths.new(1),
        )
    return made


def begun(of: Session, ticket: int = 1, group: int = 0) -> PlainOperation:
    """A collective of all ranks that was submitted here."""
    operation = PlainOperation(ticket, frozenset(of.flows))
    of.submit(operation, group, NOW)
    return operation


def hear(
    of: Session,
    rank: int,
    number: int,
    text: str = TEXT,
    *,
    stream: int = 0,
    tag: int = 0,
    carried: bytes | None = None,
    attempt: int = 0,
) -> None:
    """READY of `rank` for an operation."""
    flags = 0 if carried is None else int(Flag.CARRIES)
    header = Header(Kind.READY, rank, number, stream, round=attempt, flags=flags)
    body = Ready(text, 0, SEGMENT, tag, len(carried or b""), carried=carried).pack()
    of.rendezvous.on_ready(of.flows[rank], header, body, NOW)


def sender(operation: int, stream: int = 0) -> TransferSender:
    """Transfer 0 of an operation: one segment."""
    payload = np.zeros(64, np.uint8)
    return TransferSender(
        Key(stream, operation, 0), payload, 0, 64, np.zeros(1, np.uint8), np.arange(1)
    )
