"""No error that the kernel reports on a socket ends the engine."""

import asyncio
import ctypes
import errno
import mmap
import os
import select
import socket
import struct
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from types import SimpleNamespace
from typing import Any

import pytest

from dlcp_lab.simulation.reference import draw, rank_ordered
from dlcpd.contract.errors import ArenaFull
from dlcpd.contract.messages import Completed
from dlcpd.core.endpoint import Endpoint
from dlcpd.core.paths.pacing import Pacer
from dlcpd.core.send_scheduler import SendScheduler
from dlcpd.core.timers import Timer
from dlcpd.core.wire.header import Header, Kind
from dlcpd.daemon.clients.channel import PacketChannel
from dlcpd.daemon.http import FewAtOnce
from dlcpd.io import commands, control_events
from dlcpd.io import poll as poll_module
from dlcpd.io.clients import committed
from dlcpd.io.clients.committed import Committed
from dlcpd.io.clients.memory import create_arena
from dlcpd.io.clients.unmapping import give_back
from dlcpd.io.config import EngineConfig
from dlcpd.io.control_frames import pack, unpack
from dlcpd.io.control_link import ControlGone, ControlLink
from dlcpd.io.engine import Engine
from dlcpd.io.poll import EngineBroken, Poll
from dlcpd.io.udp import stranger_filter
from dlcpd.io.udp.udp_path import UdpPath
from dlcpd.ipc import kernel_errors
from dlcpd.ipc.seqpacket import receive, receive_now, send_now
from dlcpd.requests.memory import Range
from tests.attack.test_engine_survives import works
from tests.checks import Measured
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
    real, left = path.receiver._ring.receive, [number]  # noqa: SLF001  # the seam

    def receive(fd: int) -> object:
        if left:
            raise OSError(left.pop(), "injected")
        return real(fd)

    monkeypatch.setattr(path.receiver._ring, "receive", receive)  # noqa: SLF001
    assert not path.receiver.receive()
    assert path.counters[f"receive_{errno.errorcode[number]}"] == 1


@pytest.mark.check(102, "a socket that always fails is tried a bounded number of times")
def test_a_receive_that_always_fails(path: UdpPath, monkeypatch: pytest.MonkeyPatch) -> None:
    def receive(_fd: int) -> object:
        raise OSError(errno.ENONET, "injected")

    monkeypatch.setattr(path.receiver._ring, "receive", receive)  # noqa: SLF001
    assert not path.receiver.receive()
    assert path.counters["receive_ENONET"] == 64


class Once:
    """In the place of a function: its first call fails, or all do."""

    def __init__(self, number: int, real: Callable[..., Any] | None = None) -> None:
        self._number, self._real, self.calls = number, real, 0

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        if self._real is not None and self.calls > 1:
            return self._real(*arguments)
        raise OSError(self._number, "injected")


ALL = sorted(errno.errorcode)
EACH = pytest.mark.parametrize("number", ALL, ids=errno.errorcode.get)
LINK = "dlcpd.io.control_link"


def is_gone(number: int) -> bool:
    return kernel_errors.is_gone(OSError(number, ""))


@pytest.fixture
def link() -> Iterator[tuple[ControlLink, socket.socket, Counter[str]]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.setblocking(False)
    counters = Counter[str]()
    with ours, theirs:
        yield ControlLink(ours, counters), theirs, counters


Linked = tuple[ControlLink, socket.socket, Counter[str]]


@pytest.mark.check(102, "each errno of a command socket: only a connection that is gone ends it")
@EACH
def test_an_event_that_cannot_be_sent(
    link: Linked, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs, counters = link
    monkeypatch.setattr(f"{LINK}.send_now", Once(number, send_now))
    if is_gone(number):
        with pytest.raises(ControlGone):
            ours.emit(control_events.SessionOpened(1))
        return
    ours.emit(control_events.SessionOpened(1))
    assert counters[f"control_{errno.errorcode[number]}"] == 1
    if number == errno.EMSGSIZE:
        assert (ours.backlog, counters["events_dropped"]) == (0, 1)
    else:
        assert ours.backlog == 1, "it is tried again once the socket can be written"
        ours.flush()
        assert unpack(theirs.recv(1 << 16)) == control_events.SessionOpened(1)


@pytest.mark.check(102, "an event that can never be sent is tried a bounded number of times")
def test_an_event_that_can_never_be_sent(link: Linked, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, _, counters = link
    monkeypatch.setattr(f"{LINK}.send_now", Once(errno.ENOMEM))
    ours.emit(control_events.SessionOpened(1))
    for _ in range(kernel_errors.TRIES - 1):
        assert ours.backlog == 1
        ours.flush()
    assert (ours.backlog, counters["events_dropped"]) == (0, 1)


@pytest.mark.check(102, "each errno of a command socket: no command is lost")
@EACH
def test_a_command_that_cannot_be_received(
    link: Linked, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs, _ = link
    theirs.send(pack(commands.Stop(1.0)))
    monkeypatch.setattr(f"{LINK}.receive", Once(number, receive))
    if is_gone(number):
        with pytest.raises(ControlGone):
            ours.receive()
        return
    assert ours.receive() is None
    assert ours.receive() == (commands.Stop(1.0), [])


def test_commands_that_can_never_be_received(link: Linked, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, _, _ = link
    monkeypatch.setattr(f"{LINK}.receive", Once(errno.ENOMEM))
    for _ in range(kernel_errors.TRIES - 1):
        assert ours.receive() is None
    with pytest.raises(ControlGone):
        ours.receive()


class Epoll:
    """select.epoll, with some calls that fail."""

    def __init__(self, **failing: Callable[..., Any]) -> None:
        self._real = select.epoll()
        for name, call in failing.items():
            setattr(self, name, call)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def polling(monkeypatch: pytest.MonkeyPatch, **failing: Callable[..., Any]) -> Poll:
    made = Poll(Counter())
    monkeypatch.setattr(made, "_epoll", Epoll(**failing))
    return made


def ready(poll: Poll) -> list[int]:
    return [mask for _, mask in poll.wait(0.0)]


def ignore(_mask: int, _now: float) -> None:
    """A handler."""


@pytest.mark.check(
    102, "each errno, once, at epoll_wait and select: counted, and the next one waits"
)
@EACH
@pytest.mark.parametrize("timeout", [0.0, poll_module.FINE_SLEEP / 2], ids=["epoll", "select"])
def test_a_wait_that_fails(number: int, timeout: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poll_module, "FAILURE_REST", 0.0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        if timeout:
            poll = polling(monkeypatch)
            monkeypatch.setattr("select.select", Once(number, select.select))
        else:
            real = select.epoll()
            poll = polling(monkeypatch, poll=Once(number, real.poll), register=real.register)
        poll.watch(ours, ignore)
        theirs.send(b"x")
        assert not list(poll.wait(timeout))
        assert len(list(poll.wait(timeout))) == 1


@pytest.mark.check(
    102, "an epoll that always fails ends the engine, and no CPU is taken until then"
)
def test_a_wait_that_always_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float] = []
    monkeypatch.setattr("time.sleep", rests.append)
    poll = polling(monkeypatch, poll=Once(errno.EBADF))
    for _ in range(kernel_errors.TRIES - 1):
        assert not ready(poll)
    with pytest.raises(EngineBroken):
        ready(poll)
    assert len(rests) == kernel_errors.TRIES - 1 and min(rests) > 0


@pytest.mark.check(102, "each errno, once, at epoll_ctl: what was asked for is asked again")
@EACH
def test_a_change_that_the_kernel_does_not_take(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        real = select.epoll()
        poll = polling(
            monkeypatch, modify=Once(number, real.modify), register=real.register, poll=real.poll
        )
        poll.watch(ours, ignore)
        poll.watch_writing(ours, wanted=True)
        assert ready(poll) == [select.EPOLLOUT]
        poll.watch_writing(ours, wanted=False)
        assert not ready(poll)


@pytest.mark.check(102, "each errno, once, at epoll_ctl: what cannot be watched is not")
@EACH
def test_what_cannot_be_watched(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        poll = polling(monkeypatch, register=Once(number), unregister=Once(number))
        with pytest.raises(OSError, match="injected"):
            poll.watch(ours, ignore)
        poll.watch_writing(ours, wanted=True)
        poll.forget(ours)
        assert not ready(poll)


@pytest.mark.check(102, "each errno, once, at the error queue: counted, and the engine goes on")
@EACH
def test_an_error_queue_that_cannot_be_read(
    path: UdpPath, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = SimpleNamespace(recvmsg=Once(number))
    monkeypatch.setattr(path.probe, "_socket", failing)
    assert not list(path.probe.answers())
    counted = path.counters[f"error_queue_{errno.errorcode[number]}"]
    assert counted == (number != errno.EAGAIN)


@pytest.mark.check(102, "each errno, once, at a probe of a route: it is lost, and counted")
@EACH
def test_a_probe_that_cannot_be_sent(
    path: UdpPath, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(path.probe, "_socket", SimpleNamespace(sendmsg=Once(number)))
    path.probe.send(b"x", 1, ("127.0.0.1", 9))
    assert path.counters[f"probe_{errno.errorcode[number]}"] == 1


TOKEN = 0x1234 << 48


@pytest.mark.check(102, "each errno, once, at a socket's filter: what peers send still comes")
@EACH
def test_a_filter_that_fails(path: UdpPath, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert path.strangers.admit([])
    real = stranger_filter.attach
    monkeypatch.setattr(stranger_filter, "attach", Once(number, real))
    assert path.strangers.admit([TOKEN])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.sendto(Header(Kind.PING, TOKEN).pack(), path.address)
    assert select.select([path], [], [], 5.0)[0]
    monkeypatch.setattr(stranger_filter, "attach", Once(number))
    monkeypatch.setattr(stranger_filter, "detach", Once(number))
    assert not path.strangers.admit([2 * TOKEN])
    assert path.counters[f"filter_{errno.errorcode[number]}"] == 3


@pytest.mark.check(102, "each errno, once, where GRO is switched: it stays as it is")
@EACH
def test_gro_that_cannot_be_switched(
    path: UdpPath, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.receiver.gro
    monkeypatch.setattr(path.receiver, "_socket", SimpleNamespace(setsockopt=Once(number)))
    path.receiver._join(wanted=not before)  # noqa: SLF001  # the seam
    assert path.receiver.gro == before
    assert path.counters[f"gro_{errno.errorcode[number]}"] == 1


@pytest.mark.check(102, "each errno, once, at a look into an arena: that operation is refused")
@EACH
def test_a_hole_that_cannot_be_looked_for(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    arena = create_arena(1 << 16)
    try:
        looking = Committed(arena, 0)
        monkeypatch.setattr(committed, "_mincore", lambda *_: -1)
        monkeypatch.setattr("os.lseek", Once(number))
        with pytest.raises(ArenaFull):
            list(looking.look([Range(0, 4096, writes=True)], 1))
    finally:
        os.close(arena)


@pytest.mark.check(102, "no thread left for an arena that is given back: its descriptor is closed")
def test_an_arena_without_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    arena = create_arena(1 << 16)
    mapped = mmap.mmap(arena, 1 << 16)
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    give_back(mapped, 0, arena)
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(arena)


def no_thread(*_: object) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.check(102, "no thread left for a scrape: the next one has the place")
def test_a_request_without_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    with FewAtOnce(("127.0.0.1", 0), BaseHTTPRequestHandler, at_once=1) as served:
        monkeypatch.setattr(threading.Thread, "start", no_thread)
        for _ in range(3):
            with pytest.raises(RuntimeError), socket.socket() as request:
                served.process_request(request, ("127.0.0.1", 9))


CHANNEL = "dlcpd.daemon.clients.channel"


class Channel:
    """A PacketChannel, the other end, and what it said."""

    def __init__(self) -> None:
        ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.theirs.setblocking(False)
        self.loop, self.heard, self.ends = asyncio.new_event_loop(), list[bytes](), list[str]()
        self.counted = Counter[str]()
        self.channel = PacketChannel(
            self.loop,
            ours,
            on_packet=self.heard.append,
            on_end=self.ends.append,
            count=lambda reason: self.counted.update([reason]),
        )

    def turns(self, number: int = 4) -> None:
        for _ in range(number):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()

    def close(self) -> None:
        self.channel.close()
        self.theirs.close()
        self.loop.close()


@pytest.fixture
def channel() -> Iterator[Channel]:
    made = Channel()
    yield made
    made.close()


def counted_once(number: int) -> dict[str, int]:
    """What is counted of one such error of a channel: nothing of the end of the other side."""
    ended = isinstance(OSError(number, ""), ConnectionError)
    return {} if ended else {f"channel_{errno.errorcode[number]}": 1}


@pytest.mark.check(102, "each errno, once, at control's end of a client or an engine")
@EACH
def test_a_channel_that_cannot_be_read(
    channel: Channel, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{CHANNEL}.receive_now", Once(number, receive_now))
    channel.theirs.send(b"x")
    channel.turns()
    assert (not channel.heard, len(channel.ends)) == (is_gone(number), int(is_gone(number)))
    assert channel.counted == counted_once(number)


@pytest.mark.check(102, "each errno, once, at control's end of a client or an engine")
@EACH
def test_a_channel_that_cannot_be_written(
    channel: Channel, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{CHANNEL}.send_now", Once(number, send_now))
    channel.channel.send(b"first")
    channel.channel.send(b"second")
    channel.turns()
    assert len(channel.ends) == is_gone(number)
    if is_gone(number):
        assert channel.counted == counted_once(number)
        return
    got = [channel.theirs.recv(99) for _ in range(1 + (number != errno.EMSGSIZE))]
    assert got == [b"first", b"second"][-len(got) :]


@pytest.mark.check(102, "a channel on which every call fails ends")
@pytest.mark.parametrize("name", ["receive_now", "send_now"])
def test_a_channel_that_always_fails(
    channel: Channel, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = Once(errno.ENOMEM)
    monkeypatch.setattr(f"{CHANNEL}.{name}", fails)
    channel.theirs.send(b"x")
    if name == "send_now":
        channel.channel.send(b"x")
    channel.turns(2 * kernel_errors.TRIES)
    assert fails.calls == kernel_errors.TRIES and len(channel.ends) == 1


class Taking:
    """A path; the kernel takes nothing of it, or all."""

    def __init__(self, index: int, *, full: bool) -> None:
        self.index, self.full, self.sent = index, full, list[object]()
        self.backlog, self.too_big = list[object](), list[object]()

    def send(self, batch: object) -> None:
        (self.backlog if self.full else self.sent).append(batch)


@pytest.mark.check(102, "a batch that a full path does not take holds up none that follows it")
def test_what_follows_a_full_path(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        made = Engine(EngineConfig(host="a", paths=(("127.0.0.1", 0),) * 2), ours)
        stand_ins = [Taking(0, full=True), Taking(1, full=False)]
        network = made.network
        with ours, network.paths[0].socket, network.paths[1].socket:
            monkeypatch.setattr(network, "paths", stand_ins)
            monkeypatch.setattr(
                network, "_poll", SimpleNamespace(watch_writing=lambda *_, **__: None)
            )
            batches = [SimpleNamespace(path=path, size=1, peer=1) for path in (0, 1, 0, 1)]
            network._send_data(batches[0], iter(batches[1:]), 1.0)  # type: ignore[arg-type]  # noqa: SLF001
    assert stand_ins[1].sent == [batches[1], batches[3]]
    assert made.endpoint.full == {0}


@pytest.mark.check(102, "a bug in a timer of a session of one rank ends that session alone")
def test_a_bug_in_a_session_of_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = Endpoint(1024, 1 << 20, SendScheduler(Pacer(0)))
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


def icmp4(kind: int, code: int, port: int) -> bytes:
    """A message that quotes a UDP datagram from `port` of 127.0.0.1."""
    local = socket.inet_aton("127.0.0.1")
    quoted = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 60, 1, 0, 64, 17, 0, local, local)
    quoted += struct.pack("!HHHH", port, 9, 40, 0) + bytes(32)
    head = struct.pack("!BBHI", kind, code, 0, 0)
    return struct.pack("!BBHI", kind, code, checksum(head + quoted), 0) + quoted


def icmp6(kind: int, code: int, port: int) -> bytes:
    """The same of ::1; the kernel puts the checksum in."""
    local = socket.inet_pton(socket.AF_INET6, "::1")
    quoted = struct.pack("!IHBB16s16s", 6 << 28, 40, 17, 64, local, local)
    quoted += struct.pack("!HHHH", port, 9, 40, 0) + bytes(32)
    return struct.pack("!BBHI", kind, code, 0, 0) + quoted


@dataclass(frozen=True)
class Family:
    """One version of IP."""

    host: str
    number: int
    protocol: int
    messages: list[tuple[int, int]]
    packed: Callable[[int, int, int], bytes]


# destination unreachable, packet too big, time exceeded, parameter problem (RFC 4443)
V6 = [*((1, code) for code in range(9)), (2, 0), (3, 0), (3, 1), *((4, c) for c in range(5))]
FAMILIES = [
    Family("127.0.0.1", socket.AF_INET, socket.IPPROTO_ICMP, V4, icmp4),
    Family("::1", socket.AF_INET6, socket.IPPROTO_ICMPV6, V6, icmp6),
]
EITHER = pytest.mark.parametrize("family", FAMILIES, ids=["IPv4", "IPv6"])


class Flood:
    """Two engines, and whoever sends them ICMP messages."""

    def __init__(self, family: Family) -> None:
        self._family = family
        self._raw = socket.socket(family.number, socket.SOCK_RAW, family.protocol)
        host = family.host
        self.job = Job(2, lambda rank: EngineConfig(host=f"host{rank}", paths=((host, 0),)))

    def send(self, kind: int, code: int) -> None:
        """MESSAGES of a kind and code to each engine."""
        for endpoints in self.job.endpoints:
            message = self._family.packed(kind, code, endpoints[0][1])
            for _ in range(MESSAGES):
                self._raw.sendto(message, (self._family.host, 0))

    def check(self) -> str:
        """No datagram was lost for them: what a pending error refuses is sent again."""
        seen = Counter[str]()
        for engine in self.job.engines:
            assert engine.process.poll() is None
            counters = engine.counters()
            lost = {k: v for k, v in counters.items() if k.startswith(("send_", "internal"))}
            assert not lost
            for name, count in counters.items():
                seen[name.partition("_")[0]] += count * name.startswith(("receive_", "icmp"))
        return ", ".join(f"{count} {name}" for name, count in seen.items() if count)

    def close(self) -> None:
        self._raw.close()
        self.job.close()


@pytest.fixture
def flood(own_network: None, family: Family) -> Iterator[Flood]:
    made = Flood(family)
    yield made
    made.close()


@pytest.mark.check(101, "300 ICMP messages of each type and code: the engine lives, results right")
@pytest.mark.netns
@EITHER
def test_icmp_of_every_type_and_code(flood: Flood, family: Family, measured: Measured) -> None:
    for number, (kind, code) in enumerate(family.messages, 1):
        flood.send(kind, code)
        works(flood.job.ranks, number)
    measured(f"{family.host}: {flood.check()}")


class Load(threading.Thread):
    """Operations of 1 MB, one after the other, until `stop`; every result is looked at."""

    def __init__(self, job: Job) -> None:
        super().__init__(daemon=True)
        self._job, self.done, self.retransmitted = job, 0, 0
        self._wrong = ""
        self._stopped = threading.Event()
        self.start()

    def run(self) -> None:
        parts = draw("float32", 2, 250_000, 1)
        expected = rank_ordered(parts, "float32", "sum").tobytes()
        while not (self._stopped.is_set() or self._wrong):
            outcomes = self._job.all_reduce(self.done + 1, parts)
            self.done += 1
            for rank, outcome in zip(self._job.ranks, outcomes, strict=True):
                if not isinstance(outcome, Completed):
                    self._wrong = str(outcome)
                elif rank.tensor(0, 250_000).tobytes() != expected:
                    self._wrong = f"operation {self.done} is wrong"
                else:
                    self.retransmitted += outcome.retransmitted

    def stop(self) -> None:
        """All must have gone well."""
        self._stopped.set()
        self.join(60.0)
        wrong = self._wrong or ("does not end" if self.is_alive() else "")
        assert not wrong, f"{wrong}: {[engine.report() for engine in self._job.engines]}"


@pytest.mark.check(101, "the same while transfers run: no result is wrong, no datagram is lost")
@pytest.mark.netns
@EITHER
def test_icmp_under_load(flood: Flood, family: Family, measured: Measured) -> None:
    load = Load(flood.job)
    for kind, code in family.messages:
        before = load.done
        flood.send(kind, code)
        while load.is_alive() and load.done == before:
            time.sleep(0.001)
    load.stop()
    saw = flood.check()
    measured(f"{family.host}: {load.done} operations, {load.retransmitted} retransmitted; {saw}")
