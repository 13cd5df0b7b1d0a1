"""The shards of one process: takes them over, and admits workers."""

import logging
import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from dlcp_client.ps.calls import WorkerCall, WorkerCalls
from dlcp_client.ps.directory import LOOK, Directory, IncarnationRecord
from dlcp_client.ps.host_daemon import HostDaemon
from dlcp_client.server.config import ServerConfig
from dlcp_client.server.core import ShardCore
from dlcp_client.server.journal import Journal, JournalLocked
from dlcp_client.server.null_journal import NullJournal
from dlcp_client.server.serving import answer
from dlcp_client.server.shard import Shard
from dlcpd.contract.errors import DlcpError, ServerLost
from dlcpd.contract.limits import MAX_WORLD

REJOIN: Final = 30.0  # seconds for the workers of a shard to find the process that took it over
STAY: Final = 1.0  # seconds between two checks of the shard's record in the store
MAX_ANSWERED: Final = 2 * MAX_WORLD  # workers at once: two per rank, one of them its successor
TRY_AGAIN: Final = 0.2  # seconds between two checks whether a shard's process has ended

_log: Final = logging.getLogger("dlcpd.server")


class Stop(Protocol):
    """A stop signal, as threading.Event."""

    def wait(self, timeout: float, /) -> bool:
        """Wait up to `timeout` seconds. Returns whether to stop."""


class HostedShard:
    """A shard of this process: its journal, and the calls of workers. `launch`: number of workers
    that may join; None: a named server, which workers may join at any time."""

    def __init__(
        self,
        number: int,
        journal: Journal | NullJournal,
        config: ServerConfig,
        launch: int | None = None,
    ) -> None:
        """Raises: BadSnapshot."""
        self._journal, self._launch = journal, launch
        core = ShardCore(journal, every=config.snapshot_every)
        now = time.monotonic()
        core.recover(journal.recover(), now + (REJOIN if launch is None else 0.0))
        core.advance(now)  # workers of an earlier launch are not expected
        self.shard = Shard(core, number)
        self._calls: WorkerCalls | None = None
        self._threads: list[threading.Thread] = []
        self._due = 0.0
        self._trouble = ""  # last error of the store

    def announce(self, directory: Directory, shards: int) -> None:
        """Publish the shard, so that workers call it. Raises: BadConfig."""
        number = self.shard.number
        self._standing = IncarnationRecord(directory.announce(number, shards), shards)
        self._calls = WorkerCalls(directory.signed_store, number, self._standing.incarnation)
        _log.info(
            "shard %d of %s is ready, at version %d",
            self.shard.number,
            directory.name,
            self.shard.version,
        )

    def let_in(self, directory: Directory, host_daemon: HostDaemon) -> None:
        """Serve the workers that have called since the last time. If the store does not answer,
        sessions and shard continue; the error is logged, and the store is read again."""
        try:
            for call in self._called(directory):
                self._serve(call, host_daemon)
            self._trouble = ""
        except DlcpError as exc:
            if str(exc) != self._trouble:
                self._trouble = str(exc)
                _log.warning(
                    "shard %d: the store does not answer, so no worker can join: %s",
                    self.shard.number,
                    exc,
                )
        self.shard.tick()

    def _called(self, directory: Directory) -> list[WorkerCall]:
        """New calls. Raises: the errors of the store."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        if self._calls is None or len(self._threads) >= MAX_ANSWERED or self._complete:
            return []
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + STAY
            directory.stay(self.shard.number, *self._standing)
        return self._calls.new()

    @property
    def _complete(self) -> bool:
        """Whether no worker can join any more, because the launch is complete."""
        shard = self.shard
        return self._launch is not None and shard.came >= self._launch and not shard.expected

    def unused(self, *, orphaned: bool) -> bool:
        """Whether the launch has joined and left; or, `orphaned`, no worker is connected."""
        return not self.shard.workers and (orphaned or self._complete)

    def _serve(self, call: WorkerCall, host_daemon: HostDaemon) -> None:
        name = f"dlcp-shard-{self.shard.number}-{call.worker}"
        thread = threading.Thread(
            target=answer, args=(call, self.shard, host_daemon), name=name, daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def close(self) -> None:
        """End the shard in this process."""
        self.shard.end(ServerLost("its process received a signal to end"))
        self._journal.close()


class HostedShards:
    """All shards of this process. `launch`: as of `HostedShard`."""

    def __init__(
        self,
        config: ServerConfig,
        directory: Directory,
        host_daemon: HostDaemon,
        launch: int | None = None,
    ) -> None:
        self._config, self._directory, self._host_daemon = config, directory, host_daemon
        self._launch = launch
        self._hosted: dict[int, HostedShard] = {}

    def unused(self, *, orphaned: bool) -> bool:
        """Whether all its shards are unused: see HostedShard."""
        if len(self._hosted) < len(self._config.own):
            return orphaned
        return all(hosted.unused(orphaned=orphaned) for hosted in self._hosted.values())

    def run(self, stop: Stop, *, standby: bool) -> None:
        """Serve until `stop`. Raises: BadConfig if another process has a shard, unless this is a
        `standby`; BadSnapshot; the error that ended a shard."""
        tried = 0.0
        while not stop.wait(LOOK):
            if len(self._hosted) < len(self._config.own) and time.monotonic() >= tried + TRY_AGAIN:
                self._take(standby=standby)
                tried = time.monotonic()
            for hosted in self._hosted.values():
                hosted.let_in(self._directory, self._host_daemon)
            self._check()
        self._check()

    def _check(self) -> None:
        """Raises: the error that ended a shard."""
        for hosted in self._hosted.values():
            if hosted.shard.over is not None:
                raise hosted.shard.over

    def _take(self, *, standby: bool) -> None:
        """Take over the shards that no process has."""
        for number in self._config.own:
            if number in self._hosted:
                continue
            try:
                journal = self._journal(number)
            except JournalLocked:
                if not standby:
                    raise
                continue
            try:
                hosted = HostedShard(number, journal, self._config, self._launch)
                hosted.announce(self._directory, self._config.shards)
            except BaseException:
                journal.close()
                raise
            self._hosted[number] = hosted

    def _journal(self, number: int) -> Journal | NullJournal:
        """The journal of a shard. Raises: BadConfig, JournalLocked."""
        if not self._config.snapshots:
            return NullJournal()
        sync = os.fsync if self._config.fsync else _leave_to_kernel
        return Journal(Path(self._config.snapshots) / str(number), sync)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for hosted in self._hosted.values():
            hosted.close()


def _leave_to_kernel(_: int) -> None:
    """Does nothing: the kernel holds the written data, which survives the process."""
