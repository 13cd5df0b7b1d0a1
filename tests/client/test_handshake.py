"""The session socket against a far end that answers well, badly or not at all."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlcp_client.ipc.handshake import JOIN_MARGIN, ControlConnection
from dlcpd.contract.errors import BadMessage, DaemonUnavailable, NotPermitted, RanksDisagree
from dlcpd.contract.frames import encode
from dlcpd.contract.limits import MAX_ENGINES
from dlcpd.contract.messages import Hello, Join, Joined, Message, Refused, Welcome
from tests.descriptors import open_descriptors

WELCOME = Welcome(1, "a", "tcp://192.0.2.1:5000", "k" * 40)
JOIN = Join("j", 0, 2, 1 << 16, 5.0, [])


@pytest.fixture
def ends() -> Iterator[tuple[ControlConnection, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    yield ControlConnection(ours, lambda: "it slipped"), theirs
    ours.close()
    theirs.close()


Ends = tuple[ControlConnection, socket.socket]


def answer(theirs: socket.socket, message: Message, descriptors: list[int] | None = None) -> None:
    socket.send_fds(theirs, [encode(message)], descriptors or [])


def test_hello_is_answered_with_welcome(ends: Ends) -> None:
    control, theirs = ends
    answer(theirs, WELCOME)
    assert control.hello(1.0) == WELCOME
    sent = theirs.recv(1 << 16)
    assert f"[{os.getpid()}]".encode() in sent


@pytest.mark.parametrize("ask", ["hello", "join"])
def test_a_refusal_is_raised_as_its_error(ends: Ends, ask: str) -> None:
    control, theirs = ends
    answer(theirs, Refused("ranks_disagree", "rank 1 has 3"))
    with pytest.raises(RanksDisagree, match="rank 1 has 3"):
        control.hello(1.0) if ask == "hello" else control.join(JOIN)


@pytest.mark.parametrize("ask", ["hello", "join"])
def test_an_end_instead_of_an_answer_names_the_cause(ends: Ends, ask: str) -> None:
    control, theirs = ends
    theirs.close()
    with pytest.raises(DaemonUnavailable, match="it slipped"):
        control.hello(1.0) if ask == "hello" else control.join(JOIN)


def test_a_silent_daemon_does_not_hang_hello(ends: Ends) -> None:
    with pytest.raises(DaemonUnavailable, match="did not answer Hello"):
        ends[0].hello(0.01)


def test_a_silent_daemon_does_not_hang_join(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlcp_client.ipc.handshake.JOIN_MARGIN", 0.01)
    with pytest.raises(DaemonUnavailable, match="did not answer Join"):
        ends[0].join(Join("j", 0, 2, 1 << 16, 0.0, []))
    assert JOIN_MARGIN > 1.0


@pytest.mark.parametrize("engines", [1, MAX_ENGINES])
def test_joined_brings_arena_and_lanes(ends: Ends, engines: int) -> None:
    control, theirs = ends
    given = [*os.pipe(), *(os.dup(0) for _ in range(engines - 1))]
    answer(theirs, Joined(7, 1 << 16), given)
    size, arena, lanes = control.join(JOIN)
    assert size == 1 << 16 and len(lanes) == engines
    assert [os.fstat(end) for end in (arena, *lanes)] == [os.fstat(end) for end in given]
    assert not os.get_inheritable(arena)
    for descriptor in (arena, *lanes, *given):
        os.close(descriptor)


@pytest.mark.parametrize("count", [0, 1])
def test_joined_without_both_descriptors_is_refused(ends: Ends, count: int) -> None:
    control, theirs = ends
    before = open_descriptors()
    pipe = os.pipe()
    answer(theirs, Joined(7, 1 << 16), list(pipe[:count]))
    for end in pipe:
        os.close(end)
    with pytest.raises(BadMessage, match=f"Joined and {count} descriptors"):
        control.join(JOIN)
    assert open_descriptors() == before


def test_bad_answers_leave_no_descriptor_open(ends: Ends) -> None:
    control, theirs = ends
    before = open_descriptors()
    pipe = os.pipe()
    for packet in (b"\xc1", encode(WELCOME), encode(Refused("peer_lost", "x"))):
        socket.send_fds(theirs, [packet], list(pipe))
    for end in pipe:
        os.close(end)
    for _ in range(3):
        with pytest.raises(Exception, match=r"msgpack|Welcome|x"):
            control.join(JOIN)
    assert open_descriptors() == before


@pytest.mark.parametrize("message", [Hello(1, "x"), Joined(1, 1 << 16)])
def test_another_answer_to_hello_is_refused(ends: Ends, message: Message) -> None:
    control, theirs = ends
    answer(theirs, message)
    with pytest.raises(BadMessage, match=type(message).__name__):
        control.hello(1.0)


def test_a_socket_without_a_daemon(tmp_path: Path) -> None:
    path = tmp_path / "dlcpd.sock"
    with pytest.raises(DaemonUnavailable, match=r"No such file.*dlcpd --config FILE"):
        ControlConnection.open(str(path), 1.0)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as left_over:
        left_over.bind(str(path))
    with pytest.raises(DaemonUnavailable, match=r"refused.*DLCPD_SOCKET"):
        ControlConnection.open(str(path), 1.0)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_a_socket_that_may_not_be_used(tmp_path: Path) -> None:
    path = tmp_path / "dlcpd.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()
        child = os.fork()
        if child == 0:
            os._exit(_open_as_nobody(str(path)))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _open_as_nobody(path: str) -> int:
    os.setuid(65534)
    try:
        ControlConnection.open(path, 1.0)
    except NotPermitted as exc:
        return 0 if "user 65534" in str(exc) else 2
    return 1
