"""The daemon that the ranks of a machine share, and the embedded server's shard on that machine."""

import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self

from dlcp_client.environment import Environment, of_shard
from dlcp_client.ipc.embedded import Embedded, spawn, start
from dlcp_client.ipc.handshake import ControlConnection
from dlcp_client.ipc.private_socket import PrivateSocket
from dlcp_client.job.host_peers import HostPeers, machine
from dlcp_client.job.store import Store
from dlcp_client.joining.sessions import time_left
from dlcp_client.ps.host_daemon import HostDaemon
from dlcp_client.ps.placement import EmbeddedDirectory
from dlcp_client.ps.relay import StoreRelay
from dlcp_client.server.embedded import ShardStart
from dlcpd import starter
from dlcpd.contract.errors import BadConfig, DlcpError


@dataclass(frozen=True, slots=True)
class EmbeddedServerOptions:
    """The arguments of `register` for daemon and shards. `socket`: of the host's daemon; "": a
    private one, with `config`. `snapshots`: a folder; "": no snapshots."""

    socket: str
    config: Path | None
    snapshots: str

    @classmethod
    def of(
        cls, socket: str | None, config: str | Path | None, snapshots: str | Path | None
    ) -> Self:
        """The arguments, with defaults from the environment. Raises: BadConfig."""
        environment = Environment.read()
        path = socket or environment.socket
        if path and config:
            raise BadConfig(
                f"config={str(config)!r} applies to a private daemon, and {path} is the daemon "
                "of the host: leave one of the two out"
            )
        file = Path(config) if config else environment.config
        folder = str(Path(snapshots).absolute()) if snapshots else ""
        return cls(path, file, folder)

    def machine(self) -> str:
        """As `host_peers.machine`: ranks with equal values share a daemon, and so a shard."""
        environment = Environment.read()
        if self.socket:
            return machine(None, ["socket", self.socket])
        return machine(self.config, environment.daemon_options()) if environment.share else ""


class SharedHostDaemon(HostDaemon):
    """This machine's daemon: the host's, or one that its first rank starts. `sessions`: the number
    of sessions it has to serve.

    Raises: DaemonUnavailable, NotPermitted.
    """

    def __init__(
        self,
        given: EmbeddedServerOptions,
        peers: HostPeers,
        private_socket: PrivateSocket | None,
        sessions: int,
        deadline: float,
    ) -> None:
        self.socket = given.socket or peers.socket_path
        self._daemon, self._anchor = None, None
        self._shard: Embedded | None = None
        self._relay: StoreRelay | None = None  # shard's store; shows that this rank lives
        self._bury: Callable[[str], None]  # of the shard
        self._settled = self._alone = False
        environment = Environment.read()
        if private_socket is None:
            self._anchor = ControlConnection.open(self.socket, time_left(deadline))
        elif peers.first:
            options = environment.daemon_options()
            self._daemon, self._anchor = start(
                given.config,
                environment.master,
                private_socket,
                len(peers.ranks),
                options,
                sessions=sessions,
            )
        else:
            self._anchor = peers.connect(time_left(deadline))
        try:
            self._anchor.hello(time_left(deadline))
        except BaseException:
            self.close()
            raise

    def start_shard(self, directory: EmbeddedDirectory, shard: int, workers: int, to: str) -> None:
        """Start a shard, with snapshots in the folder `to`, if any. Workers find it, or the record
        of its end, in the store. Raises: DaemonUnavailable."""
        parent_end, shard_end = socket.socketpair()
        command = starter.command("dlcp_client.server.embedded", "--fd", str(shard_end.fileno()))
        with shard_end:
            try:
                process = spawn(command, [shard_end.fileno()], starter.environment(of_shard()))
            except BaseException:
                parent_end.close()
                raise
        self._alone = workers == 1
        self._shard = one = Embedded(process, shared=not self._alone, what="its process")
        if self._daemon is not None and not self._alone:
            self._daemon.share()  # workers of other machines need it as long as the shard
        part = ShardStart(
            directory.name, shard, directory.placement.shards, workers, self.socket, to
        )

        def ended(store: Store) -> None:
            how = one.how_it_ended()
            with suppress(DlcpError):  # a job that has ended may have no store
                replace(directory, store=store).bury(shard, how)

        self._relay = StoreRelay(parent_end, directory.store, ended)
        self._relay.start(part.text())
        self._bury = partial(directory.bury, shard)

    def settled(self) -> None:
        """All ranks have joined: from now on the shard ends with the last of them."""
        self._settled = True

    def close(self) -> None:
        """Call after all sessions: daemon and shard end with their last worker."""
        if self._relay is not None and not self._settled:
            self._relay.close()
            with suppress(DlcpError):
                self._bury("its rank failed to join")
        if self._shard is not None and self._alone:
            self._shard.close()
        self._relay = self._shard = None
        super().close()

    def abandon(self) -> None:
        """In a forked child: everything belongs to the parent."""
        if self._shard is not None:
            self._shard.abandon()
        self._relay = self._shard = None  # the relay is abandoned by `lifetimes`
        super().abandon()
