"""A stream: the operations of one group of ranks, in one sequence that all of them count.

Collectives of a group share one stream. Messages have two streams for every pair of ranks of a
group, one each way, since the sender alone counts them: the receiver may take them out of order.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from dlcpd.contract.errors import DlcpError, MalformedDatagram, TooMany
from dlcpd.core.session.digests import DigestBook, DigestCount
from dlcpd.core.session.stream_ids import (
    EVERYBODY,
    MESSAGES,
    OperationId,
    StreamId,
    is_known,
    messages,
    stream_id,
)
from dlcpd.core.wire.control import Ready

MAX_STREAMS: Final = 4096  # that peers can make a session remember, messages included
MAX_OWN_STREAMS: Final = 1 << 15  # that a session has with those of its own rank: 36 MB
MAX_AHEAD: Final = 1024  # operations that a peer may be ahead: their READYs are remembered
MAX_HELD: Final = 2048  # of all streams, per peer: 1.5 MB. A peer has at most 1,024 open, and
# others that it has aborted since
MAX_HELD_IN_ALL: Final = 1 << 15  # likewise of all peers: READYs of some 0.5 to 1.4 KB each
MAX_FAILED: Final = 1 << 16  # failed operations that a session remembers: 13 MB
DOOMED: Final = -1  # a key of `held` that is no rank
ALL_PEERS: Final = -2  # likewise


@dataclass(slots=True, eq=False)
class Stream:
    """Operations of a sequence that began here, and those that peers have announced."""

    wire: int  # number in datagrams
    peer: int = EVERYBODY
    begun: int = 0  # newest operation such that all up to it have begun here
    announced: dict[int, dict[int, Ready]] = field(default_factory=dict)  # rank -> operation -> it
    digests: DigestBook = field(default_factory=DigestBook)
    offered: int = 0  # newest message such that all up to it were offered here, or aborted
    # by rank: operations announced, of all streams; DOOMED: those that failed before they began
    held: Counter[int] = field(default_factory=Counter)
    failed: OrderedDict[OperationId, None] = field(default_factory=OrderedDict)  # of all streams
    _beyond: set[int] = field(default_factory=set)  # begun, above `begun`: messages out of order
    _doomed: dict[int, DlcpError] = field(default_factory=dict)  # failed before they began here

    @property
    def group(self) -> int:
        """Number of its group."""
        return self.wire & ~MESSAGES

    def leads_to(self, rank: int) -> bool:
        """Whether it carries messages to `rank`."""
        return self.wire == messages(self.group, self.peer, rank)

    def next_number(self) -> int:
        """Number of the operation that this rank begins next, where this rank counts them."""
        return self.begun + 1

    def begin(self, number: int) -> None:
        """An operation begins here."""
        self._beyond.add(number)
        while self.begun + 1 in self._beyond:
            self.begun += 1
            self._beyond.discard(self.begun)

    def has_begun(self, number: int) -> bool:
        """Whether an operation began here, failed or not."""
        return number <= self.begun or number in self._beyond

    def near(self, number: int) -> bool:
        """Whether an operation that has not begun is near enough to be remembered."""
        return not self.has_begun(number) and number <= self.begun + MAX_AHEAD

    def announce(self, rank: int, number: int, ready: Ready) -> None:
        """`rank` is ahead of this rank. Call it only if the operation is `near` and there is
        `room`."""
        known = self.announced.setdefault(rank, {})
        new = number not in known
        self.held[rank] += new
        self.held[ALL_PEERS] += new
        known[number] = ready

    def room(self, rank: int, number: int) -> bool:
        """Whether one more announcement of `rank` is remembered; a known one always is."""
        room = self.held[rank] < MAX_HELD and self.held[ALL_PEERS] < MAX_HELD_IN_ALL
        return room or number in self.announced.get(rank, ())

    def take(self, rank: int, number: int) -> Ready | None:
        """Remove and return the READY of `rank`."""
        ready = self.announced.get(rank, {}).pop(number, None)
        if ready is not None:
            self.held[rank] -= 1
            self.held[ALL_PEERS] -= 1
        return ready

    def offers(self) -> Iterator[tuple[int, Ready]]:
        """Messages of `peer` that may be received from now on, each once: in the order of their
        numbers, in whichever order they arrived."""
        while True:
            ready = self.announced.get(self.peer, {}).get(self.offered + 1)
            if ready is None and not self.has_begun(self.offered + 1):
                return
            self.offered += 1
            if ready is not None:
                yield self.offered, ready

    def fail(self, number: int) -> None:
        """Remember that an operation failed here."""
        self.failed[self.wire, self.peer, number] = None
        if len(self.failed) > MAX_FAILED:
            self.failed.popitem(last=False)

    def abort_ahead(self, number: int, error: DlcpError) -> None:
        """An operation will fail as soon as it begins: its peers have aborted it. If there is no
        room to remember that, it waits for its deadline."""
        if number not in self._doomed and self.held[DOOMED] < MAX_HELD:
            self.held[DOOMED] += 1
            self._doomed[number] = error

    def aborted_ahead(self, number: int) -> DlcpError | None:
        """The error with which an operation fails as it begins, once."""
        error = self._doomed.pop(number, None)
        self.held[DOOMED] -= error is not None
        return error

    def refusal(self, number: int) -> str:
        """The reason to discard data of an operation that is not open here."""
        if (self.wire, self.peer, number) in self.failed:
            return "failed"
        return "stale" if self.has_begun(number) else "early"


class Streams(dict[StreamId, Stream]):
    """All streams of a session."""

    def __init__(self) -> None:
        super().__init__()
        self._held, self._kept = Counter[int](), DigestCount()
        self._failed = OrderedDict[OperationId, None]()

    def open(self, wire: int, peer: int) -> Stream:
        """The stream with number `wire` in datagrams, created on its first use."""
        stream = self.get((wire, peer))
        if stream is None:
            stream = self[wire, peer] = Stream(
                wire, peer, digests=DigestBook(self._kept), held=self._held, failed=self._failed
            )
        return stream

    def open_own(self, wire: int, peer: int) -> Stream:
        """The same, for an operation that this rank submits. Raises: TooMany."""
        if (wire, peer) not in self and len(self) >= MAX_OWN_STREAMS:
            raise TooMany(
                f"a session has at most {MAX_OWN_STREAMS} sequences of operations: one for each "
                f"group, and two for each pair of ranks that send each other messages in it"
            )
        return self.open(wire, peer)

    @property
    def full(self) -> bool:
        """Whether peers can open no more."""
        return len(self) >= MAX_STREAMS

    def of_peer(self, wire: int, rank: int) -> Stream:
        """The stream with number `wire` in datagrams of `rank`. Raises MalformedDatagram."""
        id_ = stream_id(wire, rank)
        if id_ not in self and (not is_known(wire) or self.full):
            raise MalformedDatagram("stream", str(wire))
        return self.open(*id_)
