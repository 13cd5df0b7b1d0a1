"""One rank of one job: its flows, its operations, and who has submitted what.

Rendezvous before data: an operation's data flows to a peer only after that peer's READY,
so nothing arrives that has no place, and ranks that disagree are told so by name.
"""

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np

from dlcpd.contract.errors import (
    DeadlineExceeded,
    DlcpError,
    PeerLost,
    RanksDisagree,
    ReplicaDivergence,
    TooMany,
    error_for,
)
from dlcpd.core import control
from dlcpd.core.bitmap import Segments
from dlcpd.core.control import Ready
from dlcpd.core.digests import DigestBook
from dlcpd.core.events import (
    Event,
    OperationDone,
    OperationFailed,
    OperationReleased,
    PathNews,
    SessionBroken,
    Stats,
)
from dlcpd.core.flow import Flow
from dlcpd.core.health import PathState
from dlcpd.core.incoming import Incoming
from dlcpd.core.paths import CONTROL
from dlcpd.core.residual import ResidualStore
from dlcpd.core.sender import ChunkSender, Key
from dlcpd.core.timers import TimerTable
from dlcpd.core.wire import MAX_ROUND, Flag, Header, Kind

MAX_AHEAD: Final = 1024  # operations a peer may be ahead of us; its READYs are remembered
MAX_OPEN: Final = 1024  # operations in flight of one session
MAX_LEDGER: Final = 4096  # rows kept for reports
PINGS_BEFORE_LOST: Final = 8  # silence alone may be our own sleep, and pings are lost like data:
# at 20 % each way three in a row go unanswered once in twenty times, eight once in thousands
ALIKE_PINGS: Final = 3  # before they come twice, three times ... as often: some 100 in all, since
# loss that goes by packets and not by time is outlasted by nothing else


class Operation(Protocol):
    """A collective in flight, as the session sees it."""

    ready_ranks: set[int]  # peers whose READY is in
    out_sizes: dict[int, int]  # by rank: segment size of what we send
    in_sizes: dict[int, int]  # by rank: segment size of what it sends
    done: bool  # its result stands, though peers may still fetch parts of it

    @property
    def number(self) -> int: ...
    @property
    def ready(self) -> Ready: ...
    @property
    def deadline(self) -> float: ...  # absolute

    def start(self, session: "Session", now: float) -> None: ...
    def on_peer_ready(self, rank: int, now: float, *, late: bool) -> None: ...
    def open_incoming(self, rank: int, key: Key, now: float) -> Incoming | str: ...
    def on_received(self, incoming: Incoming, now: float) -> None: ...
    def on_acknowledged(self, rank: int, sender: ChunkSender, now: float) -> None: ...
    def on_given_up(self, rank: int, sender: ChunkSender, missing: Segments) -> Segments: ...
    def on_failed(self) -> None: ...
    def needs(self, rank: int) -> bool: ...
    def waiting_for(self) -> str: ...


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """Segments of one chunk that went missing for good in one operation (P9)."""

    operation: int
    name: str  # of the tensor
    sender: int  # rank
    owner: int  # rank
    chunk: int
    segments: int
    paths: dict[int, int]  # path -> segments; known to the sender only


@dataclass(slots=True)
class Telling:
    """Our READY towards one peer, while it may not have arrived."""

    checked: int  # operation whose replica digest it carries
    digest: int
    attempt: int = 0


@dataclass(slots=True, eq=False)
class Session:
    """Implements what flows (`Host`) and operations need. Time comes in with every call."""

    number: int
    rank: int
    world_size: int
    timers: TimerTable
    counters: Counter[str]
    peer_timeout: float = 1.0  # seconds
    flows: dict[int, Flow] = field(default_factory=dict)
    operations: dict[int, Operation] = field(default_factory=dict)
    residuals: ResidualStore = field(default_factory=ResidualStore)
    digests: DigestBook = field(init=False)
    events: list[Event] = field(default_factory=list)
    ledger: list[LedgerRow] = field(default_factory=list)
    broken: tuple[str, str] | None = None  # code, text
    submitted: int = 0  # newest operation number
    _now: float = 0.0
    _ready: dict[int, dict[int, Ready]] = field(default_factory=dict)  # rank -> operation -> it
    _telling: dict[tuple[int, int], Telling] = field(default_factory=dict)  # rank, operation
    _late: set[tuple[int, int]] = field(default_factory=set)  # (rank, operation) whose data we cut
    _farewell: SessionBroken | None = None  # of a peer that left while operations went on
    _failed: OrderedDict[int, None] = field(default_factory=OrderedDict)
    _doomed: dict[int, DlcpError] = field(default_factory=dict)  # failed before we submitted it

    def __post_init__(self) -> None:
        self.digests = DigestBook(r for r in range(self.world_size) if r != self.rank)

    # --- from the client ----------------------------------------------------------

    def submit(self, operation: Operation, now: float) -> None:
        """Begin an operation.

        Raises: the error that broke the session; TooMany. Nothing changed then.
        """
        self._now = now
        if self.broken is not None:
            raise error_for(*self.broken)
        if len(self.operations) >= MAX_OPEN:
            raise TooMany(f"{MAX_OPEN} operations in flight; wait for some before submitting more")
        number = operation.number
        self.submitted = max(self.submitted, number)
        self.operations[number] = operation
        self.set_timer((self, "deadline", number), operation.deadline)
        operation.out_sizes = {rank: flow.segment_size for rank, flow in self.flows.items()}
        operation.start(self, now)
        self._late |= {(r, number) for r, flow in self.flows.items() if flow.early.was_cut(number)}
        for flow in self.flows.values():  # all, before any can fail it: nobody is left waiting
            flow.look_after_paths(now)
            told = Telling(*self.digests.next_for(flow.rank))
            self._telling[flow.rank, number] = told
            flow.outbox.imply_complete(told.checked)
            self._tell_ready(flow, operation)
            self._watch(flow)
        if number in self._doomed:
            self.fail(number, self._doomed.pop(number))
        for rank in self.flows:
            theirs = self._ready.get(rank, {}).pop(number, None)
            if theirs is not None and number in self.operations:
                self._match(rank, operation, theirs, late=False)

    def _tell_ready(self, flow: Flow, operation: Operation) -> None:
        number, told = operation.number, self._telling[flow.rank, operation.number]
        ready = operation.ready.told(
            flow.opening, told.checked, told.digest, operation.out_sizes[flow.rank]
        )
        flags = Flag.LATE if (flow.rank, number) in self._late else Flag.NONE
        again = min(told.attempt, MAX_ROUND)
        header = Header(Kind.READY, flow.token_out, number, round=again, flags=flags)
        flow.outbox.put_everywhere(
            header, ready.pack()
        )  # what follows on a path must find it there
        at = self._now + flow.paths.timeout(CONTROL, told.attempt)
        self.set_timer((self, "ready", flow.rank, number), at)

    def _knows_us_ready(self, rank: int, number: int) -> None:
        """No need to repeat our READY to `rank`."""
        if self._telling.pop((rank, number), None) is not None:
            self.cancel_timer((self, "ready", rank, number))

    def _match(self, rank: int, operation: Operation, theirs: Ready, *, late: bool) -> None:
        if not operation.ready.agrees_with(theirs):
            flow = self.flows[rank]
            text = (
                f"operation {operation.number}: rank {rank} on {flow.name} submitted "
                f"{theirs.describe()}; rank {self.rank} here submitted "
                f"{operation.ready.describe()}. All ranks must submit the same operations in "
                f"the same order"
            )
            self.fail(operation.number, RanksDisagree(text))
            return
        operation.in_sizes[rank] = theirs.segment_size
        operation.on_peer_ready(rank, self._now, late=late)
        self.flows[rank].replay_early(operation.number, self._now)

    # --- from the network -----------------------------------------------------------

    def on_ready(self, flow: Flow, header: Header, body: bytes, now: float) -> None:
        """A peer's READY. Raises MalformedDatagram."""
        number = header.operation
        self._now = now
        ready = control.unpack_ready_untrusted(body)
        flow.window = ready.window
        if not self.digests.check(flow.rank, ready.checked, ready.digest):
            self._diverged(flow.rank, ready.checked)
            return
        flow.acknowledge_all(ready.checked, now)  # it has the result: it has all of our part
        operation = self.operations.get(number)
        if operation is not None:
            if flow.rank in operation.ready_ranks:
                if header.round:  # repeated: it does not know yet that we have heard
                    flow.outbox.heard_ready.add(number)
            else:
                self._match(flow.rank, operation, ready, late=bool(header.flags & Flag.LATE))
            return
        if number > self.submitted + MAX_AHEAD:
            return  # no room to remember it: without an answer it will be told again
        if number > self.submitted:
            self._ready.setdefault(flow.rank, {})[number] = ready
            flow.early.announce(number)
        flow.outbox.heard_ready.add(number)

    def on_ready_ack(self, flow: Flow, number: int) -> None:
        """The peer knows that we are ready."""
        self._knows_us_ready(flow.rank, number)

    # --- what flows ask (Host) --------------------------------------------------------

    def open_incoming(self, rank: int, key: Key) -> Incoming | str:
        number = key[0]
        operation = self.operations.get(number)
        if operation is None:
            if number in self._failed:
                return "failed"
            return "stale" if number <= self.submitted else "early"
        return operation.open_incoming(rank, key, self._now)

    def on_received(self, incoming: Incoming, now: float) -> None:
        self._now = now
        operation = self.operations.get(incoming.key[0])
        if operation is not None:
            operation.on_received(incoming, now)

    def on_acknowledged(self, rank: int, sender: ChunkSender, now: float) -> None:
        self._now = now
        if sender.key[1] is Kind.PUSH:
            self._knows_us_ready(rank, sender.key[0])  # it took our part: it has our READY
        operation = self.operations.get(sender.key[0])
        if operation is not None:
            operation.on_acknowledged(rank, sender, now)

    def on_given_up(self, rank: int, sender: ChunkSender, missing: Segments) -> Segments:
        operation = self.operations.get(sender.key[0])
        if operation is None:
            return np.empty(0, np.intp)
        return operation.on_given_up(rank, sender, missing)

    def on_path(self, rank: int, path: int, state: PathState) -> None:
        self.counters[state.value] += 1
        loss = self.flows[rank].paths.health[path].loss
        self.events.append(PathNews(self.number, rank, path, state, loss))

    def count(self, reason: str, datagrams: int = 1) -> None:
        self.counters[reason] += datagrams

    def set_timer(self, key: Any, at: float) -> None:
        self.timers.set(key, at)

    def cancel_timer(self, key: Any) -> None:
        self.timers.cancel(key)

    # --- from operations ---------------------------------------------------------------

    def send(self, rank: int, sender: ChunkSender) -> None:
        """Queue a chunk towards `rank`."""
        self.flows[rank].send(sender)

    def resend(self, rank: int, sender: ChunkSender) -> None:
        """Queue a chunk towards `rank` once more from its start."""
        self.flows[rank].resend(sender)

    def acknowledge(self, rank: int, key: Key, now: float) -> None:
        """What arrived from `rank` shows that it has our chunk `key`."""
        self.flows[rank].acknowledge(key, now)

    def done(self, number: int, *, released: bool, stats: Stats, digest: int | None) -> None:
        """The result of an operation stands."""
        self.events.append(OperationDone(self.number, number, released, stats))
        if released:
            self._close(number)
            self._say_farewell()
        if digest is not None:
            rank = self.digests.add(number, digest)
            if rank is not None:
                self._diverged(rank, number)

    def released(self, number: int) -> None:
        """Nobody needs the memory of a done operation."""
        self.events.append(OperationReleased(self.number, number))
        self._close(number)
        self._say_farewell()

    def record(self, row: LedgerRow) -> None:
        """Book a loss."""
        self.ledger.append(row)
        if len(self.ledger) > MAX_LEDGER:
            del self.ledger[: MAX_LEDGER // 2]

    def _close(self, number: int) -> None:
        self.operations.pop(number, None)
        self.cancel_timer((self, "deadline", number))
        for rank in self.flows:
            self._knows_us_ready(rank, number)
            self._late.discard((rank, number))

    # --- failure ------------------------------------------------------------------------

    def fail(self, number: int, error: DlcpError) -> None:
        """End an operation without a result; a no-op when it is over.

        One that is not submitted yet fails as soon as it is: its peers have given it up. One
        that is done already is released: whoever misses parts of it says so himself.
        """
        operation = self.operations.get(number)
        if operation is None:
            if self.submitted < number <= self.submitted + MAX_AHEAD:
                self._doomed[number] = error
            return
        for flow in self.flows.values():
            flow.forget(number)
        if operation.done:
            self.released(number)
            return
        operation.on_failed()
        self._close(number)
        self._remember_failed(number)
        self.events.append(OperationFailed(self.number, number, error.code, str(error)))
        self._say_farewell()

    def refuse(self, number: int, error: DlcpError) -> None:
        """The next operation cannot begin here. It takes its number all the same, because the
        peers count it; its failure is told like any other's."""
        self.submitted = number
        for readies in self._ready.values():
            readies.pop(number, None)
        for flow in self.flows.values():
            flow.forget(number)
        self._remember_failed(number)
        self.events.append(OperationFailed(self.number, number, error.code, str(error)))

    def _remember_failed(self, number: int) -> None:
        self._failed[number] = None
        while len(self._failed) > MAX_AHEAD:
            self._failed.popitem(last=False)

    def fail_all(self, rank: int, error: DlcpError) -> None:
        """Break the session: every open operation fails, none can be submitted.

        After a departure, what went on without the one that left ends here too, unless it
        is only that one's silence which is reported.
        """
        if self._farewell is not None and self._farewell.rank == rank:
            return
        first = self.broken is None
        self.broken = self.broken or (error.code, str(error))
        for number in list(self.operations):
            self.fail(number, error)
        if first:
            self.events.append(SessionBroken(self.number, rank, error.code, str(error)))

    def peer_gone(self, rank: int, error: DlcpError) -> None:
        """`rank` left or died, as its daemon says. What still needs it fails; the rest goes on.

        A rank may leave as soon as it has its own last result, while others still exchange
        theirs. Nothing can be submitted any more.
        """
        if self.broken is not None:
            return
        self.broken = (error.code, str(error))
        self._farewell = SessionBroken(self.number, rank, error.code, str(error))
        flow = self.flows.get(rank)
        for number, operation in list(self.operations.items()):
            if flow is None or operation.needs(rank):
                self.fail(number, error)
            else:
                flow.acknowledge_all(number, self._now)
        self._say_farewell()

    def _say_farewell(self) -> None:
        """A departure is news for the client once nothing is left that can still succeed."""
        if self._farewell is not None and not self.operations:
            self.events.append(self._farewell)
            self._farewell = None

    def _diverged(self, rank: int, number: int) -> None:
        text = (
            f"rank {rank} on {self.flows[rank].name} and rank {self.rank} here hold different "
            f"results of operation {number}: replicas have diverged. Stop, and restart from "
            f"the last checkpoint"
        )
        self.fail_all(rank, ReplicaDivergence(text))

    # --- time -----------------------------------------------------------------------------

    def handle_timer(self, what: str, rest: tuple[Any, ...], now: float) -> None:
        """A timer of this session expired."""
        self._now = now
        if what == "deadline":
            self._deadline(rest[0], now)
        elif what == "ready":
            rank, number = rest
            if (rank, number) in self._telling:
                self._telling[rank, number].attempt += 1
                self._tell_ready(self.flows[rank], self.operations[number])
        elif what == "alive" and self.operations:
            self._check_alive(self.flows[rest[0]], now)

    def _deadline(self, number: int, now: float) -> None:
        operation = self.operations.get(number)
        if operation is not None:
            text = f"operation {number} missed its deadline; waiting for {operation.waiting_for()}"
            self.fail(number, DeadlineExceeded(text))

    def _watch(self, flow: Flow) -> None:
        key = (self, "alive", flow.rank)
        if not self.timers.pending(key):
            flow.heard(self._now)
            self.set_timer(key, self._now + self.peer_timeout / 4)

    def _check_alive(self, flow: Flow, now: float) -> None:
        silent = now - flow.heard_at
        if silent >= self.peer_timeout and flow.unanswered >= PINGS_BEFORE_LOST:
            waiting = "; ".join(op.waiting_for() for op in list(self.operations.values())[:3])
            text = (
                f"rank {flow.rank} on {flow.name} has not answered for {silent:.1f} s "
                f"({flow.unanswered} pings on {len(flow.paths)} paths); waiting for {waiting}"
            )
            self.fail_all(flow.rank, PeerLost(text))
            return
        interval = self.peer_timeout / 4
        owing = len(flow.paths) > 1 and flow.check_paths(now)
        if flow.paths.in_flight() or owing:
            interval = min(flow.paths.timeout(CONTROL, flow.unanswered) * 2, interval)
        if silent >= 0.9 * interval:
            flow.ping(now)
        if flow.unanswered:  # so that there are enough of them within the peer timeout
            often = 1 + flow.unanswered // ALIKE_PINGS
            interval = min(interval, self.peer_timeout / (2 * PINGS_BEFORE_LOST * often))
        self.set_timer((self, "alive", flow.rank), now + interval)

    def excuse_silence(self, now: float) -> None:
        """We ourselves were asleep: nobody's silence counts."""
        for flow in self.flows.values():
            flow.heard(now)
