"""No error that the kernel reports on a socket ends the engine."""

import ctypes
import errno
import os
import socket
import struct
import subprocess
from collections import Counter
from collections.abc import Iterator

import pytest

from dlcpd.core.endpoint import Endpoint
from dlcpd.core.paths.pacing import Pacer
from dlcpd.core.timers import Timer
from dlcpd.core.turns import Turns
from dlcpd.io import commands
from dlcpd.io.config import EngineConfig
from dlcpd.io.control_link import ControlGone, ControlLink
from dlcpd.io.udp.udp_path import UdpPath
from dlcpd.ipc import kernel_errors
from tests.attack.test_engine_survives import works
from tests.io.engines import Job

OUTSIDE = sorted(set(errno.errorcode) - kernel_errors.OURS)
# type, codes: destination unreachable, source quench, redirect, time exceeded, bad parameter
V4 = [*((3, code) for code in range(16)), (4, 0), *((5, c) for c in range(4)), (11, 0), (11, 1),
      (12, 0), (12, 1), (12, 2)]  # fmt: skip
MESSAGES = 300  # of each
CLONE_NEWNET = 0x40000000  # linux/sched.h


@pytest.fixture
def path() -> Iterator[UdpPath]:
    made = UdpPath(0, EngineConfig(host="a", paths=(("127.0.0.1", 0),)), Counter(), Counter())
    yield made
    made.socket.close()


@pytest.mark.check(102, "each errno, once, at receive: counted by name, and the engine goes on")
@pytest.mark.parametrize("number", OUTSIDE, ids=errno.errorcode.get)
def test_a_receive_that_fails(path: UdpPath, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real, left = path._ring.receive, [number]  # noqa: SLF001  # the seam

    def receive(fd: int) -> object:
        if left:
            raise OSError(left.pop(), "injected")
        return real(fd)

    monkeypatch.setattr(path._ring, "receive", receive)  # noqa: SLF001
    assert not path.receive()
    assert path.counters[f"receive_{errno.errorcode[number]}"] == 1


@pytest.mark.check(102, "a socket that always fails is tried a bounded number of times")
def test_a_receive_that_always_fails(path: UdpPath, monkeypatch: pytest.MonkeyPatch) -> None:
    def receive(_fd: int) -> object:
        raise OSError(errno.ENONET, "injected")

    monkeypatch.setattr(path._ring, "receive", receive)  # noqa: SLF001
    assert not path.receive()
    assert path.counters["receive_ENONET"] == 64


@pytest.mark.check(102, "each errno of a command socket: only a connection that is gone ends it")
@pytest.mark.parametrize("number", sorted(errno.errorcode), ids=errno.errorcode.get)
def test_an_event_that_cannot_be_sent(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    counters = Counter[str]()
    with ours, theirs:
        link = ControlLink(ours, counters)

        def fails(*_: object) -> bool:
            raise OSError(number, "injected")

        monkeypatch.setattr("dlcpd.io.control_link.send_now", fails)
        gone = isinstance(OSError(number, ""), ConnectionError) or number in kernel_errors.OURS
        if gone:
            with pytest.raises(ControlGone):
                link.emit(commands.SessionOpened(1))
        else:
            link.emit(commands.SessionOpened(1))
            assert counters["events_dropped"] == 1


@pytest.mark.check(102, "a bug in a timer of a session of one rank ends that session alone")
def test_a_bug_in_a_session_of_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = Endpoint(1024, 1 << 20, Turns(Pacer(0)))
    session = endpoint.open_session(7, 0, [], peer_timeout=1.0)

    def broken(*_: object) -> None:
        raise ValueError("a bug made on purpose")

    monkeypatch.setattr(type(session), "handle_timer", broken)
    endpoint.timers.set((session, Timer.PACE, None), 1.0)
    endpoint.handle_timeout(2.0)
    assert [number for number, _ in endpoint.take_faults()] == [7]


@pytest.fixture
def own_network() -> Iterator[None]:
    """A network namespace for this thread and the processes that it starts: forged ICMP leaves a
    path MTU behind, for ten minutes."""
    libc = ctypes.CDLL(None, use_errno=True)
    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.unshare(CLONE_NEWNET):
            pytest.skip("network namespaces need CAP_SYS_ADMIN")
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield
        finally:
            assert libc.setns(here, CLONE_NEWNET) == 0
    finally:
        os.close(here)


def checksum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return int(~(total + (total >> 16)) & 0xFFFF)


def icmp(kind: int, code: int, port: int) -> bytes:
    """A message that quotes a UDP datagram from `port` of 127.0.0.1."""
    local = socket.inet_aton("127.0.0.1")
    quoted = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 60, 1, 0, 64, 17, 0, local, local)
    quoted += struct.pack("!HHHH", port, 9, 40, 0) + bytes(32)
    head = struct.pack("!BBHI", kind, code, 0, 0)
    return struct.pack("!BBHI", kind, code, checksum(head + quoted), 0) + quoted


@pytest.mark.check(101, "300 ICMP messages of each type and code: the engine lives, results right")
@pytest.mark.netns
@pytest.mark.usefixtures("own_network")
def test_icmp_of_every_type_and_code() -> None:
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    job = Job(2, lambda rank: EngineConfig(host=f"host{rank}", paths=(("127.0.0.1", 0),)))
    try:
        ports = [endpoints[0][1] for endpoints in job.endpoints]
        with raw:
            for number, (kind, code) in enumerate(V4, 1):
                for port in ports:
                    message = icmp(kind, code, port)
                    for _ in range(MESSAGES):
                        raw.sendto(message, ("127.0.0.1", 0))
                works(job.ranks, number)
    finally:
        job.close()
