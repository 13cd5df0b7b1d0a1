"""Every system call on control's sockets fails once with every error that there is."""

import errno
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path

import pytest

from dlcpd.contract.messages import Join, PeerRow
from dlcpd.daemon.peers.curve import ClientHandshake
from dlcpd.daemon.peers.frames import GREETING_BYTES, greeting
from dlcpd.daemon.peers.keys import KeyPair, key_bytes
from dlcpd.daemon.peers.peers import PeerAddress
from dlcpd.ipc import kernel_errors
from tests.attack.failing_calls import FailingCalls, Kind, label
from tests.checks import Measured
from tests.daemon.kit import ARENA, Daemon, configuration
from tests.daemon.raw_peer import RawPeer, exactly, frame_of, listening

ALL = sorted(errno.errorcode)
GONE = frozenset(each for each in ALL if kernel_errors.is_gone(OSError(each, "")))
RUNNER = Path(__file__).with_name("impatient_daemon.py")
METRICS = '[metrics]\nlisten = "127.0.0.1:0"\n'
TRIES = 3  # of who asks: the first may meet the failure, the next one a rest
BROKEN = (OSError, EOFError, AssertionError, HTTPException)


class Scene:
    """A daemon with failing calls."""

    def __init__(self, calls: FailingCalls, daemon: Daemon) -> None:
        self.calls, self.daemon = calls, daemon
        port = daemon.wait_for("metrics")["port"]
        self.metrics = f"http://127.0.0.1:{port}/metrics"
        with daemon.client() as client:
            welcome = client.greet()
        self.control = PeerAddress(welcome.endpoint, welcome.public_key)
        self.keys = KeyPair.new()
        daemon.wait_for("client_left")
        self._descriptors = daemon.descriptors

    def settle(self) -> None:
        """Until control has closed what its last callers left."""
        deadline = time.monotonic() + 20.0
        while self.daemon.descriptors > self._descriptors:
            assert time.monotonic() < deadline, "a connection stays open"
            time.sleep(0.001)

    def status(self) -> None:
        """A client's question."""
        with self.daemon.client() as client:
            client.greet()
            report = client.status()
            assert "error" not in report["engine"], report["engine"]

    def handshake(self) -> None:
        """A peer that nobody expects proves its key."""
        with socket.create_connection(self.control.target, 20.0) as sock:
            shake = ClientHandshake(self.keys, key_bytes(self.control.key))
            sock.sendall(greeting(as_server=False))
            exactly(sock, GREETING_BYTES)
            sock.sendall(shake.hello())
            sock.sendall(shake.initiate(frame_of(sock)))

    def scrape(self) -> None:
        """Prometheus' question."""
        with urllib.request.urlopen(self.metrics, timeout=20.0) as answer:  # noqa: S310
            assert b"dlcpd_uptime_seconds" in answer.read()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("calls")
    calls = FailingCalls(folder)
    file = configuration(folder, more=METRICS, daemon="drain_timeout = 0.0")
    with Daemon(file, runner=RUNNER, environ=calls.environ) as daemon:
        yield Scene(calls, daemon)
        calls.disarm()


CALLS = [
    ("accept4", Kind.CLIENT, Scene.status),
    ("recv", Kind.CLIENT, Scene.status),
    ("send", Kind.CLIENT, Scene.status),
    ("getsockopt", Kind.CLIENT, Scene.status),
    ("ioctl", Kind.CLIENT, Scene.status),
    ("close", Kind.CLIENT, Scene.status),
    ("recv", Kind.LANE, Scene.status),
    ("send", Kind.LANE, Scene.status),
    ("accept4", Kind.TCP, Scene.handshake),
    ("recv", Kind.TCP, Scene.handshake),
    ("send", Kind.TCP, Scene.handshake),
    ("setsockopt", Kind.TCP, Scene.handshake),
    ("ioctl", Kind.TCP, Scene.handshake),
    ("close", Kind.TCP, Scene.handshake),
    ("accept4", Kind.TCP, Scene.scrape),
    ("recv", Kind.TCP, Scene.scrape),
    ("send", Kind.TCP, Scene.scrape),
    ("poll", Kind.ANY, Scene.scrape),
    ("shutdown", Kind.TCP, Scene.scrape),
    ("close", Kind.TCP, Scene.scrape),
]

OF_A_LINE = ["socket", "connect", "setsockopt", "getsockopt", "send", "recv", "ioctl", "close"]


@pytest.mark.check(102, "each errno, once, at each call of control's sockets: the next is served")
@pytest.mark.parametrize(
    ("name", "kind", "ask"), CALLS, ids=[f"{n}-{k.name}-{ask.__name__}" for n, k, ask in CALLS]
)
def test_a_call_of_control_fails(
    scene: Scene, name: str, kind: Kind, ask: Callable[[Scene], None], measured: Measured
) -> None:
    pid, again, began = scene.daemon.process.pid, 0, time.monotonic()
    engine = scene.daemon.engine_pid
    for number in ALL:
        if kind is Kind.LANE and number in GONE | {errno.EMSGSIZE}:
            continue  # the engine has gone, or a command is too long: see test_kernel_errors.py
        if (name, kind, number) == ("send", Kind.CLIENT, errno.EMSGSIZE):
            continue  # costs the answer: the client waits until its own timeout
        scene.settle()
        scene.calls.arm(name, number, kind=kind, pid=pid)
        for left in reversed(range(TRIES)):
            try:
                ask(scene)
                break
            except BROKEN:
                assert left, label(number)
                again += 1
        scene.calls.await_fired()
        scene.status()
    assert scene.daemon.engine_pid == engine
    took = time.monotonic() - began
    measured(f"{name} {kind.name} {ask.__name__}: {again} had to ask again, {took:.0f} s")


class Peer:
    """The control of another host, to which the daemon has a line."""

    def __init__(self, scene: Scene) -> None:
        self.keys = KeyPair.new()
        address, self.listener = listening(self.keys)
        self.client = scene.daemon.client()
        welcome = self.client.greet()
        rows = [
            PeerRow(0, welcome.host, welcome.endpoint, welcome.public_key),
            PeerRow(1, "there", address.endpoint, address.key),
        ]
        self.client.send(Join(f"job {time.monotonic()}", 0, 2, ARENA, 600.0, rows))
        self.line = self.accept()

    def accept(self) -> RawPeer:
        """The next connection that comes through its handshake."""
        while True:
            try:
                return RawPeer.accept(self.listener, self.keys)
            except TimeoutError:
                raise
            except OSError:  # it met the failure
                continue

    def close(self) -> None:
        self.line.sock.close()
        self.listener.close()
        self.client.close()


@pytest.fixture
def peer(scene: Scene) -> Iterator[Peer]:
    made = Peer(scene)
    yield made
    made.close()


@pytest.mark.check(102, "each errno, once, at each call of a line to a peer: it is made anew")
@pytest.mark.parametrize("name", OF_A_LINE)
def test_a_call_of_a_line_fails(scene: Scene, peer: Peer, name: str) -> None:
    pid = scene.daemon.process.pid
    for number in ALL:
        kind = Kind.ANY if name == "socket" else Kind.TCP
        scene.calls.arm(name, number, kind=kind, pid=pid)
        peer.line.sock.close()
        peer.line = peer.accept()
        scene.calls.await_fired()
    scene.status()


@pytest.mark.check(102, "an accept that fails for good is tried again after a rest, and told")
def test_a_listener_that_always_fails(scene: Scene) -> None:
    pid = scene.daemon.process.pid
    scene.calls.arm("accept4", errno.EINVAL, kind=Kind.CLIENT, times=20, pid=pid)
    scene.status()
    scene.daemon.wait_for("accept_failed", text="Invalid argument")
