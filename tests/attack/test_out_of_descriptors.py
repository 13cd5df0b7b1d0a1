"""Who waits while a process has no descriptor left costs it no CPU, and is served afterwards."""

import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dlcpd.daemon.peers.curve import ClientHandshake
from dlcpd.daemon.peers.frames import GREETING_BYTES, greeting
from dlcpd.daemon.peers.keys import KeyPair, key_bytes
from dlcpd.daemon.peers.peers import PeerAddress
from tests.attack.resources import without_descriptors
from tests.checks import Measured
from tests.daemon.kit import PATIENCE, Client, Daemon, configuration, environment, until
from tests.daemon.raw_peer import exactly, frame_of

WATCHED = 5.0  # seconds
MOST = 0.1  # of a CPU, that a thread may use meanwhile
METRICS = '[metrics]\nlisten = "127.0.0.1:0"\n'


def cpu_by_thread(pid: int) -> dict[str, float]:
    """Seconds of user and system time that each thread of a process has had."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        found[f"{pid}/{task.name}"] = ticks / os.sysconf("SC_CLK_TCK")
    return found


class Waiting(threading.Thread):
    """One who asks, until it is served."""

    def __init__(self, name: str, ask: Callable[[], object]) -> None:
        super().__init__(daemon=True, name=name)
        self._ask, self.failed = ask, ""
        self.start()

    def run(self) -> None:
        try:
            self._ask()
        except Exception as exc:
            self.failed = repr(exc)


@contextmanager
def child(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command of dlcpctl, while it runs."""
    with subprocess.Popen(
        [sys.executable, "-m", "dlcpd.ctl.main", *arguments],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline()


def greet(path: Path) -> None:
    client = Client.connect(path)
    client.greet()
    client.close()


def shake_hands(to: PeerAddress) -> None:
    with socket.create_connection(to.target, PATIENCE) as sock:
        shake = ClientHandshake(KeyPair.new(), key_bytes(to.key))
        sock.sendall(greeting(as_server=False))
        exactly(sock, GREETING_BYTES)
        sock.sendall(shake.hello())
        shake.initiate(frame_of(sock))


def read(url: str) -> None:
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:  # noqa: S310
        assert answer.status == 200
        answer.read()


def hear(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as sock:
        assert sock.recv(1)


def left(daemon: Daemon) -> list[object]:
    """Clients that have gone."""
    return [event for event in daemon.events if event["event"] == "client_left"]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


@pytest.mark.check(117, "no descriptor left for scrape, page, peer, client: no spin, all served")
def test_who_waits_for_descriptors(tmp_path: Path, measured: Measured) -> None:
    file, port = configuration(tmp_path, more=METRICS), free_port()
    with (
        Daemon(file) as daemon,
        child("page", "--socket", str(daemon.socket), "--listen", "127.0.0.1:0") as page,
        child("doctor", "--listen", "--port", str(port), "--config", str(file)) as doctor,
    ):
        metrics = f"http://127.0.0.1:{daemon.wait_for('metrics')['port']}/metrics"
        looked_at = first_line(page).split()[0]
        assert first_line(page).startswith("of ")
        assert first_line(doctor)
        with daemon.client() as client:
            welcome = client.greet()
        until(lambda: len(left(daemon)) == 2, "the page or the client holds a descriptor")
        peer = PeerAddress(welcome.endpoint, welcome.public_key)
        pids = daemon.process.pid, page.pid, doctor.pid
        with without_descriptors(*pids):
            waiting = [
                Waiting("scrape", lambda: read(metrics)),
                Waiting("page", lambda: read(looked_at)),
                Waiting("peer", lambda: shake_hands(peer)),
                Waiting("client", lambda: greet(daemon.socket)),
                Waiting("doctor", lambda: hear(port)),
            ]
            daemon.wait_for("accept_failed")
            daemon.wait_for("peer_accept_failed")
            before = {name: used for pid in pids for name, used in cpu_by_thread(pid).items()}
            began = time.monotonic()
            time.sleep(WATCHED)
            took = time.monotonic() - began
            assert all(one.is_alive() for one in waiting), [one.failed for one in waiting]
            after = {name: used for pid in pids for name, used in cpu_by_thread(pid).items()}
        for one in waiting:
            one.join(PATIENCE)
            assert not one.is_alive() and not one.failed, (one.name, one.failed)
    used = {name: (seconds - before.get(name, 0.0)) / took for name, seconds in after.items()}
    assert max(used.values()) < MOST, used
    measured(f"{took:.0f} s without one: {max(used.values()):.3f} of a CPU, of {len(used)} threads")
