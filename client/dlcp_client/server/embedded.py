"""The process of one shard of an embedded server: `ps.register` starts it, and it ends with its
job. While a worker is connected, only SIGKILL ends it."""

import argparse
import json
import logging
import os
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from dlcp_client.environment import Environment
from dlcp_client.job.secret import job_secret
from dlcp_client.ps.directory import Directory
from dlcp_client.ps.host_daemon import HostDaemon
from dlcp_client.ps.relay import LineSocket, RelayedStore
from dlcp_client.server.config import MAX_EVERY, ServerConfig
from dlcp_client.server.core import DEFAULT_EVERY
from dlcp_client.server.hosting import HostedShards
from dlcpd.contract.errors import DlcpError
from dlcpd.ipc.oom_score import undo_what_was_added
from dlcpd.ipc.signals import ignore_all

CLEAN: Final = 0
FAILED: Final = 1


@dataclass(frozen=True, slots=True)
class ShardStart:
    """The first message of the process that starts a shard."""

    name: str  # of the server
    shard: int
    shards: int  # of the server
    workers: int  # of the job
    socket: str  # session socket of the shard's daemon
    snapshots: str  # folder; "": no snapshots

    def text(self) -> str:
        """The message form."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> "ShardStart":
        """The ShardStart in `text`."""
        values: dict[str, Any] = json.loads(text)
        return cls(**values)

    def config(self) -> ServerConfig:
        """The server's configuration for this process. Without a folder it needs no snapshots."""
        every = DEFAULT_EVERY if self.snapshots else MAX_EVERY
        return ServerConfig(
            self.name, self.shards, "", self.snapshots, (self.shard,), every, socket=self.socket
        )


class ShardLifetime:
    """Ends when no worker uses the shard, and none can join any more."""

    def __init__(self, hosting: HostedShards, store: RelayedStore) -> None:
        self._hosting, self._store = hosting, store

    def wait(self, timeout: float, /) -> bool:
        """See `Stop`."""
        time.sleep(timeout)
        return self._hosting.unused(orphaned=self._store.gone)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve. Exit code: 0 the job has ended, 1 a runtime failure, described in the last line."""
    parser = argparse.ArgumentParser(description="A shard of an embedded parameter server.")
    parser.add_argument("--fd", type=int, required=True, help="socket of the trainer")
    options = parser.parse_args(arguments)
    ignore_all()
    undo_what_was_added()
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(name)s: %(message)s"
    )
    try:
        _serve(LineSocket(socket.socket(fileno=options.fd)))
    except (OSError, EOFError):  # the trainer ended before its first message
        return FAILED
    except DlcpError as exc:
        sys.stderr.write(f"{exc}\n")
        return FAILED
    return CLEAN


def _serve(lines: LineSocket) -> None:
    """Serve until the job ends. Raises: DlcpError that ended or prevented the shard."""
    part, store = ShardStart.of(lines.receive()), RelayedStore(lines)
    directory = Directory(store, part.name, job_secret(Environment.read()))
    host_daemon = HostDaemon(part.socket)
    with HostedShards(part.config(), directory, host_daemon, part.workers) as hosting:
        hosting.run(ShardLifetime(hosting, store), standby=False)


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)
