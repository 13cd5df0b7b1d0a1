"""The daemon of this process, through which all its sessions with shards or workers go."""

from pathlib import Path
from typing import Any

from dlcp_client.environment import Environment
from dlcp_client.ipc.door import Door
from dlcp_client.ipc.embedded import Embedded, start
from dlcp_client.ipc.handshake import ControlConnection
from dlcp_client.job.joining import enter
from dlcp_client.job.origin import Origin
from dlcp_client.job.rendezvous import Member
from dlcp_client.numpy.arrays import ARRAYS, Array
from dlcp_client.session import Session


class Home:
    """The host's daemon where `socket` names it, else a private one, which ends with this process.

    One for all sessions: so their flows share its measure of what this host's link takes, by which
    it grants credit to all who send to it.

    Raises: DaemonUnavailable.
    """

    def __init__(self, socket: str | None = None, config: str | Path | None = None) -> None:
        environment = Environment.read()
        self.socket = socket or environment.socket
        self._daemon: Embedded | None = None
        self._anchor: ControlConnection | None = None  # without it the daemon ends when it is idle
        if not self.socket:
            with Door() as door:
                file = Path(config) if config else environment.config
                options = environment.daemon_options()
                self._daemon, self._anchor = start(file, environment.master, door, 1, options)
                self.socket = door.name

    def enter(
        self,
        member: Member,
        name: str,
        arena_bytes: int,
        deadline: float,
        previous: Session[Any] | None = None,
    ) -> Session[Array]:
        """A session of `member`. It takes over what was waived in `previous`, which still has to
        be open. Raises: as `connect`."""
        origin = Origin(member.store, "session", None, ARRAYS, self.socket)
        return enter(member, origin, name, arena_bytes, deadline, previous=previous)

    def close(self) -> None:
        """After all sessions: let the daemon end."""
        if self._anchor is not None:
            self._anchor.close()
        if self._daemon is not None:
            self._daemon.close()
        self._anchor = self._daemon = None

    def abandon(self) -> None:
        """In a forked child: all of it is the parent's."""
        if self._anchor is not None:
            self._anchor.close()
        if self._daemon is not None:
            self._daemon.abandon()
        self._anchor = self._daemon = None
