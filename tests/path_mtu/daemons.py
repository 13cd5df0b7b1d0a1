"""Two real daemons on the hosts of a `Network`, and a real client session on each."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch._C._distributed_c10d import HashStore

from dlcp_client import Session, connect, exact
from dlcpd.inspection.report import query
from tests.path_mtu.network import Network

ROOT: Final = Path(__file__).parents[2]
PATIENCE: Final = 60.0  # seconds until a test fails; never waited for
POLL: Final = 0.05  # seconds


@dataclass
class Hosts:
    """Both hosts, by name: "a" has rank 0, "b" rank 1."""

    sessions: list[Session]
    sockets: list[str]
    logs: list[Path]
    processes: "list[subprocess.Popen[bytes]]"

    def all_reduce(self, size: int, deadline: float = PATIENCE) -> None:
        """One exact operation of `size` bytes, checked on both ranks; the first error is raised."""
        finish = self.begin(size, deadline)
        finish()

    def begin(self, size: int, deadline: float = PATIENCE) -> Callable[[], None]:
        """Begin one; call what is returned to wait for it and check it."""
        generator = torch.Generator().manual_seed(size)
        parts = [torch.randn(size // 4, generator=generator) for _ in self.sessions]
        expected = parts[0] + parts[1]
        works = [
            session.all_reduce(part, policy=exact(deadline=deadline))
            for session, part in zip(self.sessions, parts, strict=True)
        ]

        def finish() -> None:
            for work in works:
                work.wait()
            for part in parts:
                assert torch.equal(part, expected)

        return finish

    def path(self, rank: int) -> dict[str, Any]:
        """What the status of a rank's daemon says of its path to the other rank."""
        [session] = self._engine(rank)["sessions"].values()
        [peer] = session["peers"]
        [path] = peer["paths"]
        return {**path, "segment_size": peer["segment_size"]}

    def counters(self, rank: int) -> dict[str, int]:
        counters: dict[str, int] = self._engine(rank)["counters"]
        return counters

    def _engine(self, rank: int) -> dict[str, Any]:
        engine: dict[str, Any] = query(self.sockets[rank], 0)["engine"]
        return engine

    def log(self, rank: int) -> str:
        return self.logs[rank].read_text()


@contextmanager
def hosts(net: Network, folder: Path, network: str = "") -> Iterator[Hosts]:
    """Daemons with these lines in [network], and sessions on them; all end with the test."""
    made = Hosts([], [], [], [])
    try:
        for host in "ab":
            _start(net, folder, host, network, made)
        until(lambda: all("ready" in log.read_text() for log in made.logs), "daemons are ready")
        made.sessions += _joined(made.sockets)
        yield made
    finally:
        for session in made.sessions:
            session.close()
        for process in made.processes:
            process.kill()
            process.wait(PATIENCE)


def _start(net: Network, folder: Path, host: str, network: str, made: Hosts) -> None:
    address, file = net.addresses[host], folder / f"{host}.toml"
    socket, log = folder / f"{host}.sock", folder / f"{host}.log"
    file.write_text(
        f'[daemon]\nhost = "host-{host}"\nsocket = "{socket}"\ncontrol_address = "{address}"\n'
        f'[network]\npaths = [{{ address = "{address}" }}]\n{network}\n'
    )
    command = net.inside(host, sys.executable, "-m", "dlcpd", "--config", str(file))
    with log.open("wb") as errors:
        made.processes.append(subprocess.Popen(command, stderr=errors, cwd=ROOT))
    made.sockets.append(str(socket))
    made.logs.append(log)


def _joined(sockets: list[str]) -> list[Session]:
    store = HashStore()
    with ThreadPoolExecutor(len(sockets)) as pool:
        joining = [
            pool.submit(connect, store, rank, len(sockets), socket=socket, timeout=PATIENCE)
            for rank, socket in enumerate(sockets)
        ]
        return [future.result() for future in joining]


def until(condition: Callable[[], Any], what: str) -> None:
    """Wait for something that another process brings about."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE} s: {what}"
        time.sleep(POLL)
