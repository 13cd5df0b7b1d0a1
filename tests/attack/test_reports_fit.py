"""Whatever the size of a world: reports are whole, and parts and events fit their packets."""

import socket
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from dlcpd.contract.frames import decode_untrusted, encode
from dlcpd.contract.inquiries import Status
from dlcpd.contract.messages import MAX_FRAME
from dlcpd.core.endpoint import Endpoint, PeerSpec
from dlcpd.core.paths.pacing import Pacer
from dlcpd.core.send_scheduler import SendScheduler
from dlcpd.core.session.session import Session
from dlcpd.core.session.stragglers import Straggler
from dlcpd.daemon.engine_reports import add_part, joined
from dlcpd.io import control_events, report
from dlcpd.io.control_frames import MAX_COMMAND, pack, unpack
from dlcpd.io.control_link import ControlLink
from dlcpd.io.discovery.mtu import MtuDiscovery
from dlcpd.ipc.seqpacket import receive_now

HOST = "\N{GRINNING FACE}" * 255  # four bytes each
WORLDS = [(1, 2), (1, 256), (16, 256), (64, 64), (1000, 4)]


def endpoint_of(sessions: int, world: int) -> Endpoint:
    """An engine's sessions, with two paths to each of the other ranks."""
    endpoint = Endpoint(1024, 1 << 20, SendScheduler(Pacer(0)))
    for number in range(1, sessions + 1):
        peers = [
            PeerSpec(rank, HOST, number << 32 | rank, 1 << 63 | number << 32 | rank, 2)
            for rank in range(1, world)
        ]
        endpoint.open_session(number, 0, peers, peer_timeout=1.0)
    return endpoint


def all_late(session: Session, _now: float) -> list[Straggler]:
    text = "results of all ranks: " + ", ".join(f"rank {n} on {HOST}" for n in session.flows)
    return [Straggler(rank, HOST, "x" * 64, 9.0, 9.0, (0,), text) for rank in [*session.flows][:8]]


@pytest.mark.check(103, "worlds of any size, all late: each report is whole, in parts that fit")
@pytest.mark.parametrize(("sessions", "world"), WORLDS)
def test_a_report_fits(sessions: int, world: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "stragglers", all_late)
    endpoint = endpoint_of(sessions, world)
    mtu = MtuDiscovery(endpoint, [], 1024, lambda _news: None)
    endpoint.counters["token"] = 7
    last = endpoint.sessions[1].flows[world - 1]
    last.paths.tx[0].up = False
    found: dict[str, Any] = {}
    for part in report.report_parts(endpoint, [], mtu, {}, 100):
        frame = pack(control_events.Report(part))
        assert len(frame) <= MAX_COMMAND
        event = unpack(frame)
        assert isinstance(event, control_events.Report)
        add_part(found, event.report)
    assert len(found["sessions"]) == sessions and "truncated" not in found
    assert {len(each["peers"]) for each in found["sessions"].values()} == {world - 1}
    assert found["sessions"]["1"]["peers"][0]["rank"] == last.rank  # the one in alarm, first
    whole = {"engine": joined({0: found, 1: found}, of=2)}
    assert whole["engine"]["sessions"]["1"]["alarms"]["paths_down"] == 2
    told = conversation(whole)["engine"]
    assert told == whole["engine"]
    assert told["counters"]["token"] == 14


def conversation(status: dict[str, Any]) -> dict[str, Any]:
    """The report as a reader has it after all messages."""
    before = bytearray()
    messages = Status.parts(status)
    for number, part in enumerate(messages, 1):
        packet = encode(part)
        assert len(packet) <= MAX_FRAME
        message = decode_untrusted(packet)
        assert isinstance(message, Status) and message.left == len(messages) - number
        if not message.left:
            return message.read(bytes(before))
        before += message.report
    raise AssertionError("a report has at least one message")


def test_alarms_stay_where_rows_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "MAX_REPORT", 4096)
    endpoint = endpoint_of(4, 256)
    for session in endpoint.sessions.values():
        for flow in session.flows.values():
            flow.paths.tx[1].up = False
    mtu = MtuDiscovery(endpoint, [], 1024, lambda _news: None)
    found: dict[str, Any] = {}
    for part in report.report_parts(endpoint, [], mtu, {}, 0):
        add_part(found, part)
    assert found["truncated"] is True
    assert sum(len(each.get("peers", [])) for each in found["sessions"].values()) < 4 * 255
    for each in found["sessions"].values():
        assert each["alarms"] == {"silent_peers": 0, "paths_down": 255, "paths_gray": 0}


def test_a_session_that_ends_between_two_parts_has_no_more_rows() -> None:
    endpoint = endpoint_of(2, 256)
    mtu = MtuDiscovery(endpoint, [], 1024, lambda _news: None)
    parts = report.report_parts(endpoint, [], mtu, {}, 0)
    found: dict[str, Any] = {}
    for _ in range(2):
        add_part(found, next(parts))
    endpoint.close_session(1)
    endpoint.close_session(2)
    for part in parts:
        add_part(found, part)
    assert [each["peers"] for each in found["sessions"].values()] == [[], []]


@pytest.fixture
def link() -> Iterator[tuple[ControlLink, Counter[str], socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    counters = Counter[str]()
    with ours, theirs:
        yield ControlLink(ours, counters), counters, theirs


LONG = "x" * (1 << 20)
NEWS = [
    control_events.Report({"text": LONG}),
    control_events.TraceReport({"text": LONG}),
    control_events.SessionEnded(1, "internal", LONG, LONG),
    control_events.SessionFailed(1, 2, "peer_lost", LONG),
    control_events.OperationsFailed(1, [control_events.FailedOperation(1, n, [1], "x", "y" * 99)
                                  for n in range(10_000)]),
    control_events.LedgerEnded(1, LONG),
    control_events.SessionDelivered(1, LONG),
]  # fmt: skip


@pytest.mark.check(104, "an event that is too long ends nothing; what is needed comes shorter")
@pytest.mark.check(105, "an event that is too long is counted, whatever its type")
@pytest.mark.parametrize("event", NEWS, ids=[type(event).__name__ for event in NEWS])
def test_an_event_that_is_too_long(
    event: control_events.Event, link: tuple[ControlLink, Counter[str], socket.socket]
) -> None:
    out, counters, theirs = link
    out.emit(event)
    out.emit(control_events.SessionOpened(7))
    assert counters["events_too_long"] == 1 and not out.backlog
    came = []
    while data := receive_now(theirs):
        came.append(unpack(data))
    assert came[-1] == control_events.SessionOpened(7)
    assert isinstance(event, control_events.OperationsFailed | control_events.LedgerEnded) or (
        type(came[0]) is type(event)
    )
