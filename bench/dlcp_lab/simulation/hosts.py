"""Simulated ranks: the core of each host, their sessions and operations; no network yet."""

import random
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dlcpd.collectives.execution import Execution
from dlcpd.collectives.loss.accounts import Accounts
from dlcpd.collectives.order import Group, Loss, Order
from dlcpd.collectives.scratch import ScratchPool
from dlcpd.contract.errors import DlcpError
from dlcpd.contract.messages import LayerRow
from dlcpd.core.endpoint import Endpoint, PeerSpec
from dlcpd.core.paths.pacing import Pacer
from dlcpd.core.send_scheduler import SendScheduler
from dlcpd.core.session.events import Event, OperationDone, OperationFailed, OperationReleased
from dlcpd.core.session.session import Session
from dlcpd.core.session.stream_ids import EVERYBODY
from dlcpd.core.transfer.layers import Layers
from dlcpd.core.wire.datagram import Bytes
from dlcpd.core.wire.header import KIND, Header, Kind
from dlcpd.numerics.codecs.codec import wire_size
from dlcpd.numerics.codecs.names import codec_of
from dlcpd.numerics.elements import STORAGE
from dlcpd.schedules.builders.all_reduce import direct, one_shot
from dlcpd.schedules.coded import coded, gathered
from dlcpd.schedules.model import Buffer, Program, Send

SMALL, MAX_FAN_IN = 16 << 10, 64 << 10  # bytes: below them one step does it (schedules.choose)


@dataclass(repr=False)
class SimHosts:
    """Ranks with an endpoint each, or several with one, in virtual time.

    A network between them is a subclass: it carries what endpoints send, and wakes them.
    """

    world_size: int
    _: KW_ONLY
    seed: int = 0
    segment_size: int = 128
    chunk_segments: int = 16
    paths: int = 1
    grant: int = 1 << 20
    rate_bps: float = 0.0  # of every engine; 0 = no cap
    peer_timeout: float = 1.0
    suspect_after: float = 1.0
    one_shot: bool = False  # small operations go in one step, as in the engine
    hosts: tuple[tuple[int, ...], ...] = ()  # ranks that share an endpoint; empty: each has its own
    life: int = 0  # tells the tokens of one network's sessions from another's
    now: float = 1000.0
    endpoints: list[Endpoint] = field(init=False)
    sessions: list[Session] = field(init=False)
    events: list[list[Event]] = field(init=False)
    accounts: list[Accounts] = field(init=False)  # by rank
    programs: dict[tuple[int, int], Program] = field(default_factory=dict)  # by rank, ticket

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

    def operation(  # noqa: PLR0913  # all that the orders of tests vary
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
        if data.dtype != STORAGE[dtype]:
            raise TypeError(f"{dtype} is stored as {STORAGE[dtype]}, not as {data.dtype}")
        memory = data.reshape(-1).view(np.uint8)
        written = memory if output is None else output.reshape(-1).view(np.uint8)
        loses = f"max_loss {max_loss:g}, fill {fill}"
        terms = terms or f"{op} of {dtype}[{data.size}], {loses}, class {traffic_class}"
        ranges = tuple((a, b) for a, b in exempt or [])
        loss = Loss(max_loss, name, fill == "residual", ranges, scale=scale)
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
            program is not None and program.computed > 0,
        )
        program = program or self.program(group, memory.size, max_loss)
        if coder is not None:
            encode = gathered if program.computed else coded
            program = encode(program, lambda size: wire_size(coder, size // data.itemsize))
        return Execution(order, program, (memory, written), self.scratch[rank], self.accounts[rank])

    def program(self, group: Group, size: int, max_loss: float) -> Program:
        """Of an all-reduce."""
        world = group.size
        small = size <= SMALL and round(max_loss * 1e6) * -(-size // self.segment_size) < 1_000_000
        if self.one_shot and small and size * (world - 1) <= MAX_FAN_IN:
            return one_shot(group.rank, world, size)
        return direct(group.rank, world, size, self.segment_size * self.chunk_segments)

    def abort(self, rank: int, number: int, error: DlcpError, source: int = 0) -> None:
        """As control does when another rank has aborted the operation."""
        self.sessions[rank].abort(source, 0, number, error, self.now)

    def open(self, rank: int, number: int) -> Execution:
        """An operation that is open on a rank."""
        return cast(Execution, self.sessions[rank].operations[0, EVERYBODY, number])

    def sent(self, source: int, target: int, header: Header) -> Send:
        """The step whose bytes a datagram of data carries, in an all-reduce of all ranks."""
        program = self.programs[source, header.operation]
        return cast(Send, program.steps[program.sends[target, header.transfer]])

    def is_contribution(self, source: int, target: int, data: bytes) -> bool:
        """Whether a datagram carries what its sender put in."""
        return is_data(data) and not self.is_result(source, target, data)

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


def is_data(data: bytes) -> bool:
    """Whether a datagram is one of kind DATA."""
    return len(data) > KIND and data[KIND] == Kind.DATA
