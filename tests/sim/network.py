"""N endpoints, a lossy network with a seed, a virtual clock. No sockets, no sleeping."""

import heapq
import random
from dataclasses import dataclass, field

import numpy as np

from dlcpd.collectives.all_reduce import AllReduce, ScratchPool, Spec
from dlcpd.core.control import Ready
from dlcpd.core.datagram import Bytes, Received, Transmit
from dlcpd.core.endpoint import Endpoint, PeerSpec
from dlcpd.core.events import Event
from dlcpd.core.numbers import STORAGE
from dlcpd.core.pacing import Pacer
from dlcpd.core.session import Session
from dlcpd.core.wire import HEADER_SIZE

MAX_BATCH = 64  # datagrams handed over in one receive call


@dataclass(frozen=True)
class Link:
    """Every ordered pair of hosts has such a link on every path."""

    loss: float = 0.0  # probability
    duplicate: float = 0.0  # probability
    delay: float = 50e-6  # seconds, one way
    jitter: float = 0.0  # seconds, uniform; above the spacing it reorders
    spacing: float = 1e-6  # seconds between datagrams


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
    peer_timeout: float = 1.0
    now: float = 1000.0
    cut: set[int] = field(default_factory=set)  # ranks that hear and say nothing
    endpoints: list[Endpoint] = field(init=False)
    sessions: list[Session] = field(init=False)
    events: list[list[Event]] = field(init=False)
    carried: int = 0
    _queue: list[tuple[float, int, int, int, bytes]] = field(default_factory=list)
    _sent: int = 0

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)  # noqa: S311
        n = self.world_size
        self.endpoints = [Endpoint(self.segment_size, self.grant, Pacer(0)) for _ in range(n)]
        self.scratch = [ScratchPool(self.segment_size * self.chunk_segments) for _ in range(n)]
        self.sessions, self.events = [], [[] for _ in range(n)]
        self.where: dict[tuple[int, int], int] = {}  # (rank, flow index) -> peer rank
        for rank, endpoint in enumerate(self.endpoints):
            peers = [
                PeerSpec(p, f"host{p}", token(p, rank), token(rank, p), self.paths)
                for p in range(n) if p != rank
            ]  # fmt: skip
            session = endpoint.open_session(1, rank, peers, peer_timeout=self.peer_timeout)
            for peer, flow in session.flows.items():
                self.where[rank, flow.index] = peer
            self.sessions.append(session)

    def submit(self, rank: int, number: int, data: np.ndarray, **options: object) -> Bytes:
        """All-reduce `data` (kept as the result's memory) on one rank."""
        operation = self.operation(rank, number, data, **options)
        self.sessions[rank].submit(operation, self.now)
        return operation.memory

    def operation(  # noqa: PLR0913
        self, rank: int, number: int, data: np.ndarray, *, dtype: str = "float32",
        op: str = "sum", max_loss: float = 0.0, name: str = "", fill: str = "residual",
        deadline: float = 60.0, in_place: bool = True, critical: list[list[int]] | None = None,
        fingerprint: int = 0, digest_every: int = 1,
    ) -> AllReduce:  # fmt: skip
        ready = Ready(dtype, op, fill, 5, data.size, max_loss, fingerprint)
        spec = Spec(
            number, name, ready, self.now + deadline, in_place, critical or [], digest_every,
            seed=self.seed,
        )  # fmt: skip
        assert data.dtype == STORAGE[dtype]
        return AllReduce(
            spec, data.reshape(-1).view(np.uint8), self.segment_size, self.scratch[rank]
        )

    def run(self, until: float = 30.0, max_steps: int = 200_000) -> None:
        """Until nothing is due before `until` seconds from now."""
        stop = self.now + until
        for _ in range(max_steps):
            self._drain()
            wakes = [t for e in self.endpoints if (t := e.next_timeout()) is not None]
            wakes += [self._queue[0][0]] if self._queue else []
            if not wakes or min(wakes) > stop:
                return
            self.now = max(self.now, min(wakes))
            self._deliver()
            for endpoint in self.endpoints:
                due = endpoint.next_timeout()
                if due is not None and due <= self.now:
                    endpoint.handle_timeout(self.now)
        raise AssertionError(f"livelock: {max_steps} steps, now={self.now}")

    def _drain(self) -> None:
        for rank, endpoint in enumerate(self.endpoints):
            for batch in endpoint.transmit(self.now):
                for data in datagrams(batch):
                    self._carry(rank, self.where[rank, batch.peer], batch.path, data)
            for control in endpoint.controls(self.now):
                self._carry(rank, self.where[rank, control.peer], control.path, control.data)
            self.events[rank] += self.sessions[rank].events
            self.sessions[rank].events.clear()

    def _carry(self, source: int, target: int, path: int, data: bytes) -> None:
        self.carried += 1
        if source in self.cut or target in self.cut:
            return
        copies = 1 + (self._rng.random() < self.link.duplicate)
        for _ in range(copies):
            if self._rng.random() >= self.link.loss:
                self._sent += 1
                arrive = self.now + self.link.delay + self._rng.random() * self.link.jitter
                heapq.heappush(self._queue, (arrive, self._sent, target, path, data))

    def _deliver(self) -> None:
        due: dict[tuple[int, int], list[bytes]] = {}
        while self._queue and self._queue[0][0] <= self.now:
            _, _, target, path, data = heapq.heappop(self._queue)
            due.setdefault((target, path), []).append(data)
        for (target, path), batch in due.items():
            for at in range(0, len(batch), MAX_BATCH):
                received = as_received(batch[at : at + MAX_BATCH], path, self)
                self.endpoints[target].receive(received, self.now)


def token(receiver: int, sender: int) -> int:
    """The token `receiver` gave `sender`."""
    return 0xABCD_0000_0000_0000 | receiver << 16 | sender


def datagrams(batch: Transmit) -> list[bytes]:
    """What io would put on the wire."""
    size = batch.segment_size
    return [
        head.tobytes() + batch.payload[s * size : (s + 1) * size].tobytes()
        for head, s in zip(batch.headers, batch.segments.tolist(), strict=True)
    ]


def as_received(batch: list[bytes], path: int, net: SimNetwork) -> Received:
    """What io would make of arriving datagrams."""
    width = HEADER_SIZE + net.segment_size
    fit = [d for d in batch if len(d) <= width]
    rows = np.zeros((max(len(fit), 1), width), np.uint8)
    for row, data in zip(rows, fit, strict=False):
        row[: len(data)] = np.frombuffer(data, np.uint8)
    lengths = np.array([len(d) for d in fit], np.intp)
    return Received(
        path, net.now, rows, np.arange(len(fit)), lengths, [d for d in batch if len(d) > width]
    )
