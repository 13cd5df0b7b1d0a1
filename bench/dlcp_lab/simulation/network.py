"""N endpoints, a lossy network with a seed, a virtual clock. No sockets, no sleeping."""

import heapq
import math
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field

import numpy as np

from dlcp_lab.simulation.hosts import SimHosts, is_data
from dlcp_lab.simulation.port import SimPort
from dlcpd.contract.errors import DlcpError
from dlcpd.contract.traffic import Ecn
from dlcpd.core.endpoint import Endpoint
from dlcpd.core.wire import bundle
from dlcpd.core.wire.datagram import Transmit
from dlcpd.core.wire.header import HEADER_SIZE, KIND, Kind
from dlcpd.core.wire.rows import Received

FRAMING = 66  # bytes around a datagram on Ethernet: IP, UDP, frame, gap
MAX_BATCH = 64  # datagrams handed over in one receive call

Tamper = Callable[[int, int, bytes], Iterable[bytes]]  # source, target, datagram -> what arrives


@dataclass(frozen=True)
class SimLink:
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


@dataclass(repr=False)
class SimNetwork(SimHosts):
    """Same seed, same run, byte for byte."""

    link: SimLink = SimLink()
    _: KW_ONLY
    detour: dict[int, float] = field(default_factory=dict)  # path -> seconds beyond link.delay
    cut: set[int] = field(default_factory=set)  # ranks that hear and say nothing
    # ranks whose process is stopped; what comes meanwhile waits in their sockets' buffers
    stopped: dict[int, list[tuple[int, bytes, bool]]] = field(default_factory=dict)
    buffers: int = 1000  # datagrams that wait for a stopped rank; the others are lost
    tamper: Tamper | None = None  # what the network does to a datagram
    recorded: list[Carried] | None = None  # set to a list to keep what is sent
    carried: int = 0
    dropped: int = 0  # by full queues
    ports: dict[tuple[int, int], SimPort] = field(default_factory=dict)  # by target and path
    _queue: list[tuple[float, int, int, int, bytes | None, bool]] = field(default_factory=list)
    _free_at: dict[tuple[int, int], float] = field(default_factory=dict)  # port -> idle again
    _sent: int = 0

    def abort(self, rank: int, number: int, error: DlcpError, source: int = 0) -> None:
        """As control does when another rank has aborted the operation."""
        super().abort(rank, number, error, source)
        self._drain()

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
        """A datagram on its way to `target`, of any sender."""
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
            (target, path), SimPort(link.queue, ranks=link.ranks, mark=link.mark)
        )
        if not port.offer(data):
            self.dropped += 1
        elif not port.busy:
            self._serve(port, target, path)

    def _serve(self, port: SimPort, target: int, path: int) -> None:
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
    """Of a batch, as `io` would put them on the wire."""
    size = batch.segment_size
    return [
        head.tobytes() + batch.payload[s * size : (s + 1) * size].tobytes()
        for head, s in zip(batch.headers(), batch.segments.tolist(), strict=True)
    ]


def as_received(batch: list[bytes], path: int, net: SimNetwork) -> Received:
    """As `io` would make them of arriving datagrams: rows, and strays for those that fit no row.

    Control and small data come both ways: at the end of a joined burst as a row, and as
    a stray when alone or joined with others of their size. Here every other one is a row.
    """
    width = HEADER_SIZE + net.segment_size
    rows: list[bytes] = []
    strays: list[bytes] = []
    for position, data in enumerate(batch):
        is_row = (len(data) == width and is_data(data)) or (len(data) <= width and position % 2)
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
