"""The daemon that the ranks of a machine share, and the embedded server's shard on that machine."""

import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self

from dlcp_client.environment import Environment, of_shard
from dlcp_client.ipc.door import Door
from dlcp_client.ipc.embedded import Embedded, spawn, start
from dlcp_client.ipc.handshake import ControlConnection
from dlcp_client.job.neighbours import Neighbours, machine
from dlcp_client.job.store import Store
from dlcp_client.joining.sessions import time_left
from dlcp_client.ps.home import Home
from dlcp_client.ps.placement import EmbeddedDirectory
from dlcp_client.ps.relay import Relay
from dlcp_client.server.embedded import Part
from dlcpd import starter
from dlcpd.contract.errors import BadConfig, DlcpError


@dataclass(frozen=True, slots=True)
class Given:
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
                f"config={str(config)!r} is of a private daemon, and {path} is the host's: leave "
                f"one of the two out"
            )
        file = Path(config) if config else environment.config
        folder = str(Path(snapshots).absolute()) if snapshots else ""
        return cls(path, file, folder)

    def machine(self) -> str:
        """As `neighbours.machine`: ranks with equal values share a daemon, and so a shard."""
        environment = Environment.read()
        if self.socket:
            return machine(None, ["socket", self.socket])
        return machine(self.config, environment.daemon_options()) if environment.share else ""


class Beside(Home):
    """This machine's daemon: the host's, or one that its first rank starts. `sessions`: the number
    of sessions it has to serve.

    Raises: DaemonUnavailable, NotPermitted.
    """

    def __init__(
        self, given: Given, near: Neighbours, door: Door | None, sessions: int, deadline: float
    ) -> None:
        self.socket = given.socket or near.door
        self._daemon, self._anchor = None, None
        self._shard: Embedded | None = None
        self._relay: Relay | None = None  # shard's store; shows that this rank lives
        self._bury: Callable[[str], None]  # of the shard
        self._settled = self._alone = False
        environment = Environment.read()
        if door is None:
            self._anchor = ControlConnection.open(self.socket, time_left(deadline))
        elif near.first:
            options = environment.daemon_options()
            self._daemon, self._anchor = start(
                given.config, environment.master, door, len(near.ranks), options, sessions=sessions
            )
        else:
            self._anchor = near.connect(time_left(deadline))
        try:
            self._anchor.hello(time_left(deadline))
        except BaseException:
            self.close()
            raise

    def start_shard(self, directory: EmbeddedDirectory, shard: int, workers: int, to: str) -> None:
        """Start a shard, with snapshots in the folder `to`, if any. Workers find it, or the record
        of its end, in the store. Raises: DaemonUnavailable."""
        ours, theirs = socket.socketpair()
        command = starter.command("dlcp_client.server.embedded", "--fd", str(theirs.fileno()))
        with theirs:
            try:
                process = spawn(command, [theirs.fileno()], starter.environment(of_shard()))
            except BaseException:
                ours.close()
                raise
        self._alone = workers == 1
        self._shard = one = Embedded(process, shared=not self._alone, what="its process")
        if self._daemon is not None and not self._alone:
            self._daemon.share()  # workers of other machines need it as long as the shard
        part = Part(directory.name, shard, directory.placement.shards, workers, self.socket, to)

        def ended(store: Store) -> None:
            how = one.how_it_ended()
            with suppress(DlcpError):  # a job that has ended may have no store
                replace(directory, store=store).bury(shard, how)

        self._relay = Relay(ours, directory.store, ended)
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
                self._bury("its rank could not take part")
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
