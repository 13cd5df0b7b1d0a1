"""A server, in this process or in one of its own, and workers on threads; real daemons below."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from dlcp_client.job.secret import JobSecret
from dlcp_client.numpy.file_store import FileStore
from dlcp_client.ps.directory import Directory
from dlcp_client.ps.host_daemon import HostDaemon
from dlcp_client.server.config import parse
from dlcp_client.server.hosting import HostedShards
from dlcpd.contract.errors import DlcpError

T = TypeVar("T")
TIMEOUT = 60.0  # seconds; a loaded machine takes its time


def text_of(folder: Path, **more: Any) -> str:
    """A configuration: store and snapshots below `folder`."""
    values: dict[str, Any] = {
        "name": "demo",
        "shards": 1,
        "store": str(folder / "store"),
        "snapshots": str(folder / "snapshots"),
        "snapshot_every": 20,
        **more,
    }
    lines = [f"{key} = {_toml(value)}" for key, value in values.items()]
    return "\n".join(["[server]", *lines, ""])


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\0", "\\u0000") + '"'
    return str(value).lower() if isinstance(value, bool) else str(value)


@contextmanager
def served(
    folder: Path, host_daemon: HostDaemon, secret: JobSecret | None = None, **more: Any
) -> Iterator[dict[str, Any]]:
    """A server on a thread of this process; the arguments by which workers find it.

    Raises at the end: what ended a shard.
    """
    config, stop, failures = parse(text_of(folder, **more), "test"), threading.Event(), []
    directory = Directory(FileStore(config.store), config.name, secret)

    def run() -> None:
        try:
            with HostedShards(config, directory, host_daemon) as hosting:
                hosting.run(stop, standby=False)
        except DlcpError as exc:
            failures.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    until = time.monotonic() + TIMEOUT
    while not all(map(directory.newest, config.own)) and not failures:
        assert time.monotonic() < until, "the server does not start"
        time.sleep(0.01)
    try:
        yield {
            "server": config.name,
            "store": config.store,
            "socket": host_daemon.socket,
            "timeout": TIMEOUT,
            "job": "test",
        }
    finally:
        stop.set()
        thread.join(TIMEOUT)
    if failures:
        raise failures[0]


class Process:
    """`dlcpd server` as it is started; `standby` of the same configuration as another."""

    def __init__(self, folder: Path, *options: str, **more: Any) -> None:
        file = folder / "server.toml"
        file.write_text(text_of(folder, **more))
        command = [sys.executable, "-m", "dlcp_client.server.main", "--config", str(file)]
        self.log = folder / f"server-{time.monotonic_ns()}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen([*command, *options], stderr=log)

    def ready(self) -> "Process":
        """Wait until it has a shard."""
        until = time.monotonic() + TIMEOUT
        while "is ready, at version" not in self.log.read_text():
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.02)
        return self

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(TIMEOUT)

    def stop(self) -> int:
        """Ask it to end; its exit code."""
        self._process.terminate()
        try:
            return self._process.wait(TIMEOUT)
        finally:
            self._process.kill()

    def wait(self) -> int:
        """Its exit code, when it ends by itself."""
        return self._process.wait(TIMEOUT)


def each(count: int, call: Callable[[int], T]) -> list[T]:
    """call(rank) on a thread for each of `count` workers. Raises: the first error."""
    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(call, rank) for rank in range(count)]
        return [future.result(4 * TIMEOUT) for future in futures]
