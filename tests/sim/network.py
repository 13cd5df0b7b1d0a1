"""N endpoints, a lossy network with a seed, a virtual clock. No sockets, no sleeping."""

import heapq
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlcpd.collectives.execution import Execution
from dlcpd.collectives.loss.accounts import Accounts
from dlcpd.collectives.order import Group, Loss, Order
from dlcpd.collectives.scratch import ScratchPool
from dlcpd.contract.errors import DlcpError
from dlcpd.contract.messages import LayerRow
from dlcpd.contract.traffic import Ecn
from dlcpd.core.endpoint import Endpoint, PeerSpec
from dlcpd.core.paths.pacing import Pacer
from dlcpd.core.send_scheduler import SendScheduler
from dlcpd.core.session.events import Event, OperationDone, OperationFailed, OperationReleased
from dlcpd.core.session.session import Session
from dlcpd.core.session.stream_ids import EVERYBODY
from dlcpd.core.transfer.layers import Layers
from dlcpd.core.wire import bundle
from dlcpd.core.wire.datagram import Bytes, Transmit
from dlcpd.core.wire.header import HEADER_SIZE, KIND, Header, Kind
from dlcpd.core.wire.rows import Received
from dlcpd.numerics.codecs.codec import wire_size
from dlcpd.numerics.codecs.names import codec_of
from dlcpd.numerics.elements import STORAGE
from dlcpd.schedules.builders.all_reduce import direct, one_shot
from dlcpd.schedules.coded import coded
from dlcpd.schedules.model import Buffer, Program, Send
from tests.sim.port import Port

FRAMING = 66  # bytes around a datagram on Ethernet: IP, UDP, frame, gap
MAX_BATCH = 64  # datagrams handed over in one receive call

SMALL, MAX_FAN_IN = 16 << 10, 64 << 10  # bytes: below them one step does it (schedules.choose)

Tamper = Callable[[int, int, bytes], Iterable[bytes]]  # source, target, datagram -> what arrives


@dataclass(frozen=True)
class Link:
    """Every ordered pair of hosts has such a link on every path."""

    loss: float = 0.0  # probability
    duplicate: float = 0.0  # probability
    delay: float = 50e-6  # seconds, one way
    jitter: float = 0.0  # seconds, uniform; above the spacing it reorders
    rate: float = 0.0  # full datagrams per second into one host's path; 0 = no limit
    queue: int = 64  # datagrams that wait at that port; more are dropped
    classes: bool = False  # a queue per traffic class at that port, the most urgent first
    ranks: bool = False  # that drops by rank; needs classes
    mark: int = 1 << 30  # datagrams in a queue from which on it marks CE; needs classes


@dataclass(frozen=True)
class Carried:
    """One datagram as it was put on the wire."""

    source: int
    target: int
    path: int
    data: bytes


@dataclass
class SimNetwork:
    """Same seed, same run, byte for byte."""

    world_size: int
    link: Link = Link()
    seed: int = 0
    segment_size: int = 128
    chunk_segments: int = 16
    paths: int = 1
    grant: int = 1 << 20
    rate_bps: float = 0.0  # of every engine; 0 = no cap
    peer_timeout: float = 1.0
    suspect_after: float = 1.0
    detour: dict[int, float] = field(default_factory=dict)  # path -> seconds beyond link.delay
    one_shot: bool = False  # small operations go in one step, as in the engine
    hosts: tuple[tuple[int, ...], ...] = ()  # ranks that share an endpoint; empty: each has its own
    life: int = 0  # tells the tokens of one network's sessions from another's
    now: float = 1000.0
    cut: set[int] = field(default_factory=set)  # ranks that hear and say nothing
    # ranks whose process is stopped; what comes meanwhile waits in their sockets' buffers
    stopped: dict[int, list[tuple[int, bytes, bool]]] = field(default_factory=dict)
    buffers: int = 1000  # datagrams that wait for a stopped rank; the others are lost
    tamper: Tamper | None = None  # what the network does to a datagram
    recorded: list[Carried] | None = None  # set to a list to keep what is sent
    endpoints: list[Endpoint] = field(init=False)
    sessions: list[Session] = field(init=False)
    events: list[list[Event]] = field(init=False)
    accounts: list[Accounts] = field(init=False)  # by rank
    programs: dict[tuple[int, int], Program] = field(default_factory=dict)  # by rank, ticket
    carried: int = 0
    dropped: int = 0  # by full queues
    ports: dict[tuple[int, int], Port] = field(default_factory=dict)  # by target and path
    _queue: list[tuple[float, int, int, int, bytes | None, bool]] = field(default_factory=list)
    _free_at: dict[tuple[int, int], float] = field(default_factory=dict)  # port -> idle again
    _sent: int = 0

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        n = self.world_size
        self.hosts = self.hosts or tuple((rank,) for rank in range(n))
        made = [
            Endpoint(self.segment_size, self.grant, SendScheduler(Pacer(self.rate_bps)))
            for _ in self.hosts
        ]
        of = {rank: made[at] for at, ranks in enumerate(self.hosts) for rank in ranks}
        self.endpoints = [of[rank] for rank in range(n)]
        self.scratch = [ScratchPool(self.segment_size * self.chunk_segments) for _ in range(n)]
        self.accounts = [Accounts() for _ in range(n)]
        self.sessions, self.events = [], [[] for _ in range(n)]
        self.where: dict[tuple[int, int], int] = {}  # (rank, flow index) -> peer rank
        for rank in range(n):
            here = next(ranks for ranks in self.hosts if rank in ranks)
            self.sessions.append(self.open_session(rank, 1 + here.index(rank)))

    def open_session(self, rank: int, number: int) -> Session:
        peers = [
            PeerSpec(p, f"host{p}", self.token(rank, p), self.token(p, rank), self.paths)
            for p in range(self.world_size)
            if p != rank
        ]
        session = self.endpoints[rank].open_session(
            number,
            rank,
            peers,
            peer_timeout=self.peer_timeout,
            suspect_after=self.suspect_after,
        )
        for peer, flow in session.flows.items():
            for neighbour in next(ranks for ranks in self.hosts if rank in ranks):
                self.where[neighbour, flow.index] = peer
        return session

    def token(self, receiver: int, sender: int) -> int:
        """The token `receiver` gave `sender`."""
        return 0xABCD_0000_0000_0000 | self.life << 32 | receiver << 16 | sender

    # --- what ranks do --------------------------------------------------------------

    def submit(self, rank: int, number: int, data: NDArray[Any], **options: Any) -> Bytes:
        """All-reduce `data` (kept as the result's memory) on one rank."""
        operation = self.operation(rank, number, data, **options)
        self.programs[rank, number] = operation.program
        self.sessions[rank].submit(operation, operation.order.group.number, self.now)
        return operation.memory[1]

    def submit_all(self, number: int, parts: list[NDArray[Any]], **options: Any) -> None:
        """Every rank its part, which becomes the result."""
        for rank, part in enumerate(parts):
            self.submit(rank, number, part, **options)

    def operation(
        self,
        rank: int,
        number: int,
        data: NDArray[Any],
        *,
        dtype: str = "float32",
        op: str = "sum",
        max_loss: float = 0.0,
        name: str = "",
        fill: str = "residual",
        deadline: float = 60.0,
        in_place: bool = True,
        exempt: list[list[int]] | None = None,
        fingerprint: int = 0,
        digest_every: int = 1,
        traffic_class: int = 4,
        layers: Sequence[tuple[int, int, int]] = (),
        program: Program | None = None,
        output: NDArray[Any] | None = None,
        group: Group | None = None,
        tag: int = 0,
        terms: str = "",
        scale: float = 1.0,
        codec: str = "",
    ) -> Execution:
        """`number` is the ticket, which equals the number where there is one group only."""
        group = group or Group(0, tuple(range(self.world_size)), rank)
        assert data.dtype == STORAGE[dtype]
        memory = data.reshape(-1).view(np.uint8)
        written = memory if output is None else output.reshape(-1).view(np.uint8)
        loses = f"max_loss {max_loss:g}, fill {fill}"
        terms = terms or f"{op} of {dtype}[{data.size}], {loses}, class {traffic_class}"
        loss = Loss(
            max_loss,
            name,
            fill == "residual",
            tuple((a, b) for a, b in exempt or []),
            scale=scale,
        )
        coder = codec_of(codec) if codec else None
        order = Order(
            number,
            group,
            terms,
            fingerprint,
            self.now + deadline,
            dtype,
            op,
            Layers.new([LayerRow(*row) for row in layers], traffic_class, max_loss),
            loss,
            tag,
            in_place,
            terms.startswith("buffered"),
            digest_every,
            self.seed,
            coder,
        )
        if program is None:
            program = self.program(group, memory.size, max_loss)
        if coder is not None:
            item = data.itemsize
            program = coded(program, lambda size: wire_size(coder, size // item))
        return Execution(order, program, (memory, written), self.scratch[rank], self.accounts[rank])

    def program(self, group: Group, size: int, max_loss: float) -> Program:
        """Of an all-reduce."""
        world = group.size
        small = size <= SMALL and round(max_loss * 1e6) * -(-size // self.segment_size) < 1_000_000
        if self.one_shot and small and size * (world - 1) <= MAX_FAN_IN:
            return one_shot(group.rank, world, size)
        return direct(group.rank, world, size, self.segment_size * self.chunk_segments)

    def abort(self, rank: int, number: int, error: DlcpError, source: int = 0) -> None:
        """What control does when another rank gave the operation up."""
        self.sessions[rank].abort(source, 0, number, error, self.now)
        self._drain()

    def open(self, rank: int, number: int) -> Execution:
        """An operation that is open on a rank."""
        operation = self.sessions[rank].operations[0, EVERYBODY, number]
        assert isinstance(operation, Execution)
        return operation

    def sent(self, source: int, target: int, header: Header) -> Send:
        """The step whose bytes a datagram of data carries, in an all-reduce of all ranks."""
        program = self.programs[source, header.operation]
        step = program.steps[program.sends[target, header.transfer]]
        assert isinstance(step, Send)
        return step

    def is_contribution(self, source: int, target: int, data: bytes) -> bool:
        """Whether a datagram carries what its sender put in."""
        return _is_data(data) and not self.is_result(source, target, data)

    def is_result(self, source: int, target: int, data: bytes) -> bool:
        """Whether it carries what its sender has reduced."""
        header = Header.unpack_untrusted(data)
        if header.kind is not Kind.DATA:
            return False
        step = self.sent(source, target, header)
        return step.span.buffer == Buffer.OUTPUT or (step.encodes > 0 and not step.lossy)

    def done(self, rank: int) -> dict[int, OperationDone]:
        return {e.ticket: e for e in self.events[rank] if isinstance(e, OperationDone)}

    def ended(self, ticket: int) -> bool:
        """Whether the operation is done on all ranks."""
        return all(
            any(isinstance(e, OperationDone) and e.ticket == ticket for e in reversed(events))
            for events in self.events
        )

    def released(self, rank: int) -> set[int]:
        """Operations whose memory no peer needs any more."""
        return {
            e.ticket
            for e in self.events[rank]
            if isinstance(e, OperationReleased) or (isinstance(e, OperationDone) and e.released)
        }

    def failed(self, rank: int) -> dict[int, OperationFailed]:
        return {e.ticket: e for e in self.events[rank] if isinstance(e, OperationFailed)}

    def counted(self, reason: str) -> int:
        """Datagrams counted under `reason`, all ranks together."""
        return sum(endpoint.counters[reason] for endpoint in self.endpoints)

    # --- time ---------------------------------------------------------------------------

    def run(
        self,
        until: float = 30.0,
        max_steps: int = 200_000,
        enough: Callable[[], bool] = lambda: False,
    ) -> None:
        """Until nothing is due before `until` seconds from now, or it is `enough`."""
        stop = self.now + until
        awake = set(range(self.world_size))  # ranks whose endpoints may have something to send
        for _ in range(max_steps):
            self._drain(awake)
            if enough():
                return
            running = self._running()
            due = {rank: t for rank, e in running if (t := e.next_timeout()) is not None}
            wakes = [*due.values(), *([self._queue[0][0]] if self._queue else [])]
            if not wakes or min(wakes) > stop:
                return
            self.now = max(self.now, min(wakes))
            awake = self._deliver()
            reached = {id(self.endpoints[rank]) for rank in awake}
            for rank, endpoint in running:
                if due.get(rank, math.inf) > self.now and id(endpoint) not in reached:
                    continue  # nothing has changed when it is due
                timeout = endpoint.next_timeout()
                if timeout is not None and timeout <= self.now:
                    endpoint.handle_timeout(self.now)
                    awake.add(rank)
        raise AssertionError(f"livelock: {max_steps} steps, now={self.now}")

    def _running(self) -> list[tuple[int, Endpoint]]:
        return [(rank, e) for rank, e in enumerate(self.endpoints) if rank not in self.stopped]

    def stop(self, rank: int) -> None:
        """Stop the process of a rank, as SIGSTOP does."""
        self.stopped[rank] = []

    def go_on(self, rank: int) -> None:
        """Let it go on: it reads what waits for it, and then runs what is due."""
        for path, data, marked in self.stopped.pop(rank):
            self._event(self.now, rank, path, data, marked)

    def _drain(self, ranks: Iterable[int] | None = None) -> None:
        for rank in sorted(range(self.world_size) if ranks is None else ranks):
            if rank in self.stopped:
                continue
            endpoint = self.endpoints[rank]
            endpoint.exchange(self.now)
            while endpoint.more_here:  # an engine would look at its other sources in between
                endpoint.exchange(self.now)
            controls, batches = endpoint.departures(self.now)
            for control in controls:
                self._carry(rank, self.where[rank, control.peer], control.path, control.data)
            for batch in batches:
                for data in datagrams(batch):
                    self._carry(rank, self.where[rank, batch.peer], batch.path, data)
            for session in endpoint.sessions.values():
                self.events[session.rank] += session.outcomes.take()

    def _carry(self, source: int, target: int, path: int, data: bytes) -> None:
        """A BUNDLE is lost as a whole; `recorded` and `tamper` see its parts, as if each of them
        had been sent alone."""
        self.carried += 1
        parts = [data]
        if data[KIND] == Kind.BUNDLE and (self.recorded is not None or self.tamper is not None):
            parts = [part for _, part in bundle.unpack_untrusted(data)]
        if self.recorded is not None:
            self.recorded += [Carried(source, target, path, part) for part in parts]
        if source in self.cut or target in self.cut:
            return
        tamper = self.tamper
        for arriving in (
            [data]
            if tamper is None
            else [each for part in parts for each in tamper(source, target, part)]
        ):
            for _ in range(1 + (self._rng.random() < self.link.duplicate)):
                if self._rng.random() >= self.link.loss:
                    self.inject(target, arriving, path)

    def inject(self, target: int, data: bytes, path: int = 0) -> None:
        """A datagram on its way to `target`, whoever sent it."""
        leave = self.now
        if self.link.classes:
            self._offer(target, data, path)
            return
        if self.link.rate:
            free = max(self._free_at.get((target, path), 0.0), self.now)
            if (free - self.now) * self.link.rate > self.link.queue:
                self.dropped += 1
                return
            size = (len(data) + FRAMING) / (HEADER_SIZE + self.segment_size + FRAMING)
            leave = self._free_at[target, path] = free + size / self.link.rate
        self._on_the_way(leave, target, path, data)

    def _on_the_way(
        self, leave: float, target: int, path: int, data: bytes, *, marked: bool = False
    ) -> None:
        detour = self.detour.get(path, 0.0) + self._rng.random() * self.link.jitter
        self._event(leave + self.link.delay + detour, target, path, data, marked)

    def _event(self, at: float, target: int, path: int, data: bytes | None, marked: bool) -> None:
        self._sent += 1
        heapq.heappush(self._queue, (at, self._sent, target, path, data, marked))

    def _offer(self, target: int, data: bytes, path: int) -> None:
        link = self.link
        port = self.ports.setdefault(
            (target, path), Port(link.queue, ranks=link.ranks, mark=link.mark)
        )
        if not port.offer(data):
            self.dropped += 1
        elif not port.busy:
            self._serve(port, target, path)

    def _serve(self, port: Port, target: int, path: int) -> None:
        """Send the next datagram of a port; an event without data says that it has left."""
        served = port.serve()
        port.busy = served is not None
        if served is not None:
            leave = self.now + 1 / self.link.rate
            self._on_the_way(leave, target, path, served[0], marked=served[1])
            self._event(leave, target, path, None, False)

    def _deliver(self) -> set[int]:
        """Hand over what has arrived; returns the ranks that got something."""
        due: dict[tuple[int, int, bool], list[bytes]] = {}
        while self._queue and self._queue[0][0] <= self.now:
            _, _, target, path, data, marked = heapq.heappop(self._queue)
            if data is not None and target in self.stopped:
                waiting = self.stopped[target]
                waiting += [(path, data, marked)] if len(waiting) < self.buffers else []
            elif data is not None:
                due.setdefault((target, path, marked), []).append(data)
            else:
                self._serve(self.ports[target, path], target, path)
        for (target, path, marked), batch in due.items():
            for at in range(0, len(batch), MAX_BATCH):
                received = as_received(batch[at : at + MAX_BATCH], path, self)
                if marked:
                    received.congested = True
                    received.tos = np.full(1, Ecn.CE, np.int32)
                self.endpoints[target].receive(received, self.now)
        return {target for target, _, _ in due}


def datagrams(batch: Transmit) -> list[bytes]:
    """What io would put on the wire."""
    size = batch.segment_size
    return [
        head.tobytes() + batch.payload[s * size : (s + 1) * size].tobytes()
        for head, s in zip(batch.headers(), batch.segments.tolist(), strict=True)
    ]


def as_received(batch: list[bytes], path: int, net: SimNetwork) -> Received:
    """What io would make of arriving datagrams: rows, and strays for what fits no row.

    Control and small data come both ways: at the end of a joined burst as a row, and as
    a stray when alone or joined with others of their size. Here every other one is a row.
    """
    width = HEADER_SIZE + net.segment_size
    rows: list[bytes] = []
    strays: list[bytes] = []
    for position, data in enumerate(batch):
        is_row = (len(data) == width and _is_data(data)) or (len(data) <= width and position % 2)
        (rows if is_row else strays).append(data)
    padded = [data.ljust(width, b"\0") for data in rows or [b""]]
    memory = np.frombuffer(bytearray().join(padded), np.uint8).reshape(len(padded), width)
    return Received(
        path,
        [net.now],
        len(memory),
        memory,
        np.arange(len(rows)),
        np.array([len(data) for data in rows], np.intp),
        strays,
        net.now,
    )


def _is_data(data: bytes) -> bool:
    return len(data) > KIND and data[KIND] == Kind.DATA
