"""Nothing that one client, peer or bug does ends the engine: at most, it ends one session."""

import contextlib
import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from dlcp_lab.simulation.reference import draw, rank_ordered
from dlcpd.contract.messages import Completed
from dlcpd.core.endpoint import MAX_FLOWS
from dlcpd.io import commands, control_events
from dlcpd.io.clients.lane import MAX_BACKLOG
from dlcpd.io.clients.memory import create_arena
from dlcpd.io.config import EngineConfig
from dlcpd.io.control_link import MAX_EVENTS
from tests.io.engines import FORKED, Job, Rank, failure, token

Jobs = Callable[..., Job]
FAULTY = Path(__file__).with_name("faulty_engine.py")


@pytest.fixture
def job() -> Iterator[Jobs]:
    jobs: list[Job] = []

    def start(command: Sequence[str] = FORKED) -> Job:
        def configure(rank: int) -> EngineConfig:
            return EngineConfig(host=f"host{rank}", paths=(("127.0.0.1", 0),))

        jobs.append(Job(2, configure, command))
        return jobs[-1]

    yield start
    for started in jobs:
        started.close()


def works(ranks: list[Rank], number: int) -> None:
    """An all-reduce of these ranks is exact."""
    parts = draw("float32", len(ranks), 1000, number)
    for rank, part in zip(ranks, parts, strict=True):
        rank.tensor(0, 1000)[:] = part
        rank.submit(number, count=1000)
    expected = rank_ordered(parts, "float32", "sum").tobytes()
    for rank in ranks:
        assert isinstance(rank.outcome(number), Completed)
        assert rank.tensor(0, 1000).tobytes() == expected


@pytest.mark.check(1, "bad frames of one client, with its lane unread, end that session alone")
def test_bad_frames_of_one_client(job: Jobs) -> None:
    started = job()
    hostile = [started.open(rank, session=2) for rank in range(2)]
    hostile[0].lane.settimeout(20.0)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for _ in range(100_000):
            hostile[0].lane.send(b"\xc1")
    works(started.ranks, 1)
    event = started.engines[0].receive()
    assert isinstance(event, control_events.SessionEnded)
    assert (event.session, event.code) == (2, "bad_message")
    assert started.engines[0].counters()["bad_message"] == 1, "the first one ends it"
    assert list(started.engines[0].report()["sessions"]) == ["1"]
    works(started.ranks, 2)


@pytest.mark.check(1, "a client that reads nothing of its lane ends its session alone")
def test_answers_that_nobody_reads(job: Jobs) -> None:
    """Each operation fails at once, and is answered; the socket's buffer holds hundreds more."""
    started = job()
    deaf = [started.open(rank, session=2) for rank in range(2)]
    deaf[0].lane.settimeout(20.0)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for number in range(1, 2 * MAX_BACKLOG + 1):
            deaf[0].submit(number, output=4)
    event = started.engines[0].receive()
    while not isinstance(event, control_events.SessionEnded):
        event = started.engines[0].receive()
    assert event == control_events.SessionEnded(
        2, "session_closed", "the client does not read its lane"
    )
    works(started.ranks, 1)


# Wherever the engine works for one session: its clients' frames, peers' datagrams, control's
# commands, timers, and what it sends.
PLACES = [
    "dlcpd.io.clients.client:Client.handle",
    "dlcpd.requests.group:GroupRequests.make",
    "dlcpd.io.discovery.mtu:MtuDiscovery.begin",
    "dlcpd.core.session.rendezvous:Rendezvous.on_ready",
    "dlcpd.core.session.rendezvous:Rendezvous.on_ready_ack",
    "dlcpd.core.session.session:Session.submit",
    "dlcpd.core.session.session:Session.abort",
    "dlcpd.core.session.session:Session.peer_gone",
    "dlcpd.core.session.session:Session.handle_timer",
    "dlcpd.core.session.flow:Flow.on_control",
    "dlcpd.core.session.flow:Flow.transmit",
    "dlcpd.core.session.flow:Flow.flush",
    "dlcpd.core.session.flow:Flow.handle_timer",
    "dlcpd.core.session.arrivals:Arrivals.on_data",
    "dlcpd.collectives.execution:Execution.on_received",
]


@pytest.mark.check(2, "a bug in the service of one session ends that session alone")
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.partition(":")[2])
def test_a_bug(job: Jobs, place: str) -> None:
    broken = (sys.executable, str(FAULTY), "--break", place, "--session", "2")
    started = job(broken)
    unlucky = [started.open(rank, session=2) for rank in range(2)]
    submitting = unlucky[:1] if "ready_ack" in place else unlucky  # whom nobody joins, is answered
    for rank in submitting:
        with contextlib.suppress(BrokenPipeError):  # the bug was in the opening of the session
            rank.submit(1, count=100_000, output=1 << 20, output_count=100_000, deadline=60.0)
    if "abort" in place:
        row = commands.AbortedOperation(1, 0, 1, "x")
        started.engines[0].send(commands.AbortOperations(2, [row]))
    if "peer_gone" in place:
        started.engines[0].send(commands.PeerGone(2, 1, "x"))
    event = started.engines[0].receive()
    while not isinstance(event, control_events.SessionEnded):
        event = started.engines[0].receive()
    assert (event.session, event.code) == (2, "internal")
    assert "a bug made on purpose" in event.text and "Traceback" in event.trace
    works(started.ranks, 1)
    assert list(started.engines[0].report()["sessions"]) == ["1"]


@pytest.mark.check(14, "control stopped while operations fail: every one is answered")
def test_a_control_that_does_not_read(job: Jobs) -> None:
    """Twice as many failures as news for control are kept, in as many events of their own."""
    started, rank = job(), 0
    client = started.ranks[rank]
    for number in range(1, 2 * MAX_EVENTS + 1):
        client.submit(number, output=4)
        assert failure(client.outcome(number))[1] == "bad_message"
    dropped = started.engines[rank].counters()["events_dropped"]
    assert 0 < dropped <= MAX_EVENTS


def test_an_arena_that_cannot_be_mapped_fails_its_own_session(job: Jobs) -> None:
    started = job()
    arena, (lane, theirs) = create_arena(4096), socket.socketpair()
    with lane, theirs:
        command = commands.OpenSession(2, "job", 0, 1, 1 << 20, [])
        started.engines[0].send(command, [arena, theirs.fileno()])
    os.close(arena)
    event = started.engines[0].receive()
    assert isinstance(event, control_events.SessionEnded)
    assert (event.session, event.code, event.trace) == (2, "arena_full", "")
    works(started.ranks, 1)


def test_more_flows_than_an_engine_has_room_for_fail_the_session_that_asks(job: Jobs) -> None:
    """Sessions of 256 ranks each: of the seventeenth there is nothing."""
    started, world = job(), 256
    refused: list[control_events.SessionEnded] = []
    lanes: list[socket.socket] = []
    with contextlib.ExitStack() as stack:
        for session in range(2, 19):
            arena, (lane, theirs) = create_arena(4096), socket.socketpair()
            lanes.append(stack.enter_context(lane))
            peers = [
                commands.EnginePeer(
                    rank,
                    "h",
                    token(0, rank, session),
                    token(rank, 0, session),
                    [commands.UdpAddress("127.0.0.1", 9)],
                )
                for rank in range(1, world)
            ]
            command = commands.OpenSession(session, "job", 0, world, 4096, peers)
            started.engines[0].send(command, [arena, theirs.fileno()])
            os.close(arena)
            theirs.close()
        while not refused:
            event = started.engines[0].receive()
            if isinstance(event, control_events.SessionEnded):
                refused.append(event)
        works(started.ranks, 1)
    assert (refused[0].session, refused[0].code) == (18, "too_many")
    assert f"at most {MAX_FLOWS} flows" in refused[0].text
