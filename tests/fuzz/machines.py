"""Targets with state: whole halves of the project, fed with frames. None of them may raise.

What a datagram brings about is checked as well: nothing is written beside its place, and every
operation ends with a result or a named error.
"""

import os
import socket
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from dlcp_lab.simulation.network import SimNetwork
from dlcp_lab.simulation.reference import draw
from dlcpd.collectives.scratch import ScratchPool
from dlcpd.contract.errors import BadMessage
from dlcpd.core.endpoint import Endpoint, PeerSpec
from dlcpd.core.paths.pacing import Pacer
from dlcpd.core.send_scheduler import SendScheduler
from dlcpd.core.wire.datagram import Control
from dlcpd.core.wire.header import Key
from dlcpd.io.clients.client import Client
from dlcpd.io.clients.lane import Lane
from dlcpd.io.clients.memory import create_arena
from dlcpd.io.config import EngineConfig
from dlcpd.io.datapath.choices import COMPILED
from dlcpd.io.discovery.icmp import IcmpNews
from dlcpd.io.discovery.mtu import MtuDiscovery
from dlcpd.io.discovery.routes import Discovery
from tests.datapath.ring import Message, both
from tests.fuzz.seeds import TOKEN
from tests.fuzz.target import apart
from tests.io.batches import data_path

MARGIN, CANARY = 256, np.float32(1e30)
ARENA: Final = 1 << 16  # bytes
SEGMENT: Final = 64
OPEN: Final = [  # transfers of the data path: token, key, size, segment size, offered
    (TOKEN, Key(1, 3, 2), 6 * SEGMENT, SEGMENT, -1),
    (TOKEN, Key(0, 1, 0), 3 * SEGMENT + 5, SEGMENT, 1),
]


def endpoint(data: bytes) -> object:
    """Datagrams to one of two endpoints in the middle of an all-reduce that may lose some."""
    net = SimNetwork(2)
    memory = [np.full(1000 + 2 * MARGIN, CANARY) for _ in range(2)]
    views = [each[MARGIN:-MARGIN] for each in memory]
    for view, part in zip(views, draw("float32", 2, 1000, 1), strict=True):
        view[:] = part
    net.submit_all(1, views, max_loss=0.1, name="n", deadline=1.0)
    net.run(until=6e-5)  # one way: the first datagrams have arrived, their answers have not
    for datagram in apart(data):
        net.inject(0, datagram)
    net.run(until=3.0)
    for each in memory:
        assert (each[:MARGIN] == CANARY).all() and (each[-MARGIN:] == CANARY).all()
    for rank, session in enumerate(net.sessions):
        assert not session.operations
        assert net.done(rank) or net.failed(rank) or session.broken
    return net


def datapath(data: bytes) -> object:
    """The compiled receive path and numpy's: they agree, and write nothing beside a place."""
    compiled = data_path(COMPILED)
    assert compiled is not None
    sent = [Message([datagram]) for datagram in apart(data)]
    twin, ours = both(compiled, sent, OPEN)
    assert +ours.counters == +twin.counters
    assert ours.seen == twin.seen
    assert +ours.placed == +twin.placed
    for key, incoming in twin.transfers.items():
        assert (ours.transfers[key].receiver.received == incoming.receiver.received).all()
        around = ours.memories[key][np.r_[:MARGIN, -MARGIN:0]]
        assert (around == around[0]).all()
    return ours


@dataclass
class Path:
    """A path without a socket: it keeps what it is told."""

    index: int = 0
    address: tuple[str, int] = ("127.0.0.1", 9)
    too_big: list[tuple[int, int]] = field(default_factory=list)
    sent: list[Control] = field(default_factory=list)

    def limit(self, peer: int, size: int) -> None:
        assert size >= 0

    def send_control(self, control: Control) -> None:
        self.sent.append(control)


def discovery(data: bytes) -> object:
    """PROBE, PROBE_ACK and PIECE, and what ICMP quotes, to an engine's search for path MTUs."""
    made = Endpoint(1152, 1 << 20, SendScheduler(Pacer(0.0)))
    path = Path()
    mtu = MtuDiscovery(made, [path], 8896, lambda _news: None)
    routes = Discovery(made, [])
    session = made.open_session(1, 0, [PeerSpec(1, "b", TOKEN, TOKEN, 1)], peer_timeout=1.0)
    mtu.begin(1, session.flows[1], [("127.0.0.1", 9)], 1.0)
    made.handle_timeout(1.0)
    for datagram in apart(data):
        before, answers = Counter(made.counters), len(path.sent)
        rest = mtu.take(path, [datagram], 1.0)
        assert rest in ([], [datagram]) or len(rest) == 1
        if made.counters != before:
            assert (made.counters - before).total() == 1 and not rest
            assert len(path.sent) == answers
        news = IcmpNews(datagram, "127.0.0.1", int.from_bytes(datagram[-2:], "little"))
        mtu.on_icmp(path, news, 1.0)
        routes.on_answer(news)
    return made


def lane(data: bytes) -> object:
    """Frames of a client to its engine, in order, over a real lane."""
    made = Endpoint(1152, 1 << 20, SendScheduler(Pacer(0.0)))
    session = made.open_session(1, 0, [PeerSpec(1, "b", TOKEN, TOKEN, 1)], peer_timeout=1.0)
    config = EngineConfig()
    theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    arena = create_arena(ARENA)
    os.pwrite(arena, bytes(ARENA // 2), 0)  # half of it is committed
    end = Lane(1, arena, ARENA, ours.detach())
    client = Client(end, session, config, ScratchPool(config.chunk_bytes))
    refused = 0
    with theirs:
        for frame in apart(data):
            if not frame:
                continue  # SEQPACKET would take it for the end
            theirs.send(frame)
            groups, submitted = set(client.groups), client.submitted
            try:
                message = end.receive()
                assert message is not None
                client.handle(message, 1.0)
            except BadMessage:
                refused += 1
                assert (set(client.groups), client.submitted) == (groups, submitted)
            made.exchange(1.0)
            session.outcomes.take()
        end.close()
    return refused
