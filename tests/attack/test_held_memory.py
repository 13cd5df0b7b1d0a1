"""What a client or peer makes a daemon hold is bounded in bytes: each table is filled, and measured
by what Python allocates meanwhile."""

import socket
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from dlcpd.collectives.loss.accounts import Accounts
from dlcpd.contract.errors import BadMessage, DlcpError
from dlcpd.contract.messages import Failed, OpenGroup
from dlcpd.contract.sized_cache import SizedCache
from dlcpd.core import inbox
from dlcpd.core.paths.pieces import MAX_OF_ALL, MAX_PARTIAL, Reassembly
from dlcpd.core.room import Room
from dlcpd.core.session import stream
from dlcpd.core.session.stream_ids import EVERYBODY
from dlcpd.core.transfer.early import MAX_EARLY, MAX_SESSION, EarlyData
from dlcpd.core.wire.control import Ready
from dlcpd.core.wire.header import Header, Kind
from dlcpd.core.wire.sizes import MAX_SEGMENT
from dlcpd.io import control_events
from dlcpd.io.clients import client
from dlcpd.io.config import EngineConfig
from dlcpd.io.control_link import ControlLink
from dlcpd.schedules.draft import PROGRAMS
from tests.attack.resources import MB
from tests.core.test_early_data import group as datagrams
from tests.core.test_pieces import piece
from tests.io.engines import Job, Rank, failure
from tests.requests.test_operations import ARENA, session_of, submissions, submit

pytestmark = pytest.mark.executed  # their memory is measured

MOST = 64 * MB
READY = Ready("x", 0, 128)
READY_VALUES = np.ones(1000, np.float32)


@contextmanager
def within(most: int = MOST) -> Iterator[None]:
    """Less is allocated, and kept, than that."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield
        assert tracemalloc.get_traced_memory()[0] - before < most
    finally:
        tracemalloc.stop()


@pytest.mark.check(123, "plans with thousands of rows: their rows count")
def test_plans_of_many_rows() -> None:
    made = submissions(session_of(2))
    with within():
        for number in range(200):
            start = 8 * number
            rows = [(start + 16 * row, start + 16 * row + 4) for row in range(4096)]
            ask = submit(name="n", max_loss=0.1, exempt=rows)
            made.make(ask, ARENA, Accounts(), 10.0)
    assert len(list(made.plans)) < 60


@pytest.mark.check(123, "programs that builders remember: their steps count")
def test_programs_of_all_builders() -> None:
    assert PROGRAMS.size <= 1 << 16
    calls = Counter[int]()

    @SizedCache(most=100, size=len)
    def made(size: int) -> list[int]:
        calls[size] += 1
        return [0] * size

    for size in (40, 50, 40, 30, 40, 50, 200, 200):
        assert len(made(size)) == size
    assert calls == {40: 1, 50: 2, 30: 1, 200: 2}, "the oldest goes; what is too large is not kept"


@pytest.mark.check(123, "groups without end: their ranks are counted over the session's life")
def test_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_MEMBERS", 10)
    session = session_of(2)
    end: Any = _Lane()
    made = client.Client(end, session, EngineConfig(), submissions(session).scratch)
    for number in range(1, 6):
        made.handle(OpenGroup(number, "", [0, 1]), 1.0)
    with pytest.raises(BadMessage, match="of 10 ranks in all"):
        made.handle(OpenGroup(6, "", [0, 1]), 1.0)


class _Lane:
    """As much of a lane as a client without operations needs."""

    accounts = Accounts()


@pytest.mark.check(123, "sequences of operations without end")
def test_streams() -> None:
    streams = stream.Streams()
    with within():
        for number in range(stream.MAX_OWN_STREAMS):
            streams.open_own(number, EVERYBODY)
    with pytest.raises(DlcpError, match="at most 32768 sequences"):
        streams.open_own(stream.MAX_OWN_STREAMS, EVERYBODY)
    assert streams.open_own(0, EVERYBODY) is streams[0, EVERYBODY]


@pytest.mark.check(123, "operations that fail, in every group")
def test_failures() -> None:
    streams = stream.Streams()
    with within():
        for group in range(128):
            for number in range(1, 1025):
                streams.open(group, EVERYBODY).fail(number)


@pytest.mark.check(123, "control datagrams of the largest size that wait")
def test_control_that_waits() -> None:
    waiting = inbox.Inbox()
    with within():
        for number in range(10_000):
            waiting.put(Header(Kind.CREDIT, 1, number), bytes(9000), 0.0)
    assert waiting.lost and len(waiting) * 9000 <= inbox.MOST_BYTES
    while waiting:
        waiting.take()
    waiting.put(Header(Kind.CREDIT, 1, 1), bytes(9000), 0.0)
    assert len(waiting) == 1


@pytest.mark.check(123, "pieces of datagrams that never become whole, of 255 peers")
def test_pieces_of_all_peers() -> None:
    room = Room(MAX_OF_ALL)
    books = [Reassembly(room) for _ in range(255)]
    with within():
        for number in range(MAX_PARTIAL):
            for book in books:
                assert book.add(piece(number, 8900, 0, bytes(4000))) is None
    for book in books:
        book.clear()
    assert room.used == 0


@pytest.mark.check(123, "early data of 255 peers, short datagrams among long ones")
def test_early_data_of_all_peers() -> None:
    room = Room(MAX_SESSION)
    flows = [EarlyData(session=room) for _ in range(255)]
    with within(MAX_SESSION * 2):
        for flow in flows:
            flow.announce((3, 1))
            while flow.keep(datagrams(1, count=8)):
                pass
    for flow in flows:
        flow.take((3, 1))
    assert room.used == 0


@pytest.mark.check(123, "operations that 255 peers announce")
def test_announcements_of_all_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_HELD_IN_ALL", 5)
    one = stream.Streams().open(0, EVERYBODY)
    for rank in range(1, 6):
        assert one.room(rank, 1)
        one.announce(rank, 1, READY)
    assert not one.room(6, 1) and one.room(5, 1)
    assert one.take(5, 1) is READY
    assert one.room(6, 1)


@pytest.mark.check(123, "data that the READYs of 255 peers carry")
def test_carried_data_of_all_peers() -> None:
    room = Room(MAX_SESSION)
    flows = [EarlyData(session=room) for _ in range(255)]
    kept = list[bytes]()
    with within(MAX_SESSION * 2):
        for flow in flows:
            number = 0
            while flow.keep_carried((3, number := number + 1), MAX_SEGMENT):
                kept.append(bytes(MAX_SEGMENT))
    assert MAX_SESSION < len(kept) * MAX_SEGMENT <= MAX_SESSION + MAX_SEGMENT
    for flow in flows:
        for number in range(1, MAX_EARLY // MAX_SEGMENT + 1):
            flow.take((3, number))
    assert room.used == 0


@pytest.mark.check(123, "events that control does not read, of the largest size")
def test_events_that_wait() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    counters = Counter[str]()
    link = ControlLink(ours, counters)
    with ours, theirs, within():
        for number in range(1000):
            link.emit(control_events.LedgerEnded(number, "x" * 100_000))
    assert counters["events_dropped"]


@pytest.mark.check(123, "residuals of names without end: refused by name, the other job goes on")
def test_residuals() -> None:
    def configure(rank: int) -> EngineConfig:
        return EngineConfig(
            host=f"host{rank}", paths=(("127.0.0.1", 0),), memory=8 << 20, session_memory=4 << 20
        )

    job = Job(2, configure)
    try:
        greedy = [job.open(rank, 2) for rank in range(2)]
        codes = [_outcome(greedy, number) for number in range(1, 12)]
        assert codes[0] == "" and codes[-1] == "arena_full"
        for number in (1, 2):
            job.all_reduce(number, [READY_VALUES, READY_VALUES])
    finally:
        job.close()


def _outcome(ranks: list[Rank], number: int) -> str:
    """Code of an operation with a codec, of 1 MB and another name each; "" where it is done."""
    for rank in ranks:
        rank.submit(number, count=1 << 18, codec="bf16", name=f"n{number}", in_place=True)
    told = [rank.outcome(number) for rank in ranks]
    return next((failure(each)[1] for each in told if isinstance(each, Failed)), "")
