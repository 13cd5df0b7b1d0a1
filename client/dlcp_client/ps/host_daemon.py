"""The daemon of this process, used by all its sessions with shards or workers."""

from pathlib import Path
from typing import Any

from dlcp_client.environment import Environment
from dlcp_client.ipc.embedded import Embedded, start
from dlcp_client.ipc.handshake import ControlConnection
from dlcp_client.ipc.private_socket import PrivateSocket
from dlcp_client.job.rendezvous import Member
from dlcp_client.job.session_origin import SessionOrigin
from dlcp_client.joining.sessions import enter
from dlcp_client.numpy.arrays import ARRAYS, Array
from dlcp_client.session import Session


class HostDaemon:
    """The host's daemon if `socket` names it, else a private one, which ends with this process.

    All sessions share it, so their flows share its estimate of this host's link rate, by which it
    grants CREDIT to all senders.

    Raises: DaemonUnavailable.
    """

    def __init__(self, socket: str | None = None, config: str | Path | None = None) -> None:
        environment = Environment.read()
        self.socket = socket or environment.socket
        self._daemon: Embedded | None = None
        self._anchor: ControlConnection | None = None  # keeps an idle daemon running
        if not self.socket:
            with PrivateSocket() as private_socket:
                file = Path(config) if config else environment.config
                options = environment.daemon_options()
                self._daemon, self._anchor = start(
                    file, environment.master, private_socket, 1, options
                )
                self.socket = private_socket.name

    def enter(
        self,
        member: Member,
        name: str,
        arena_bytes: int,
        deadline: float,
        previous: Session[Any] | None = None,
    ) -> Session[Array]:
        """A session of `member`. It takes over the residuals of `previous`, which must still be
        open. Raises: as `connect`."""
        origin = SessionOrigin(member.store, "session", None, ARRAYS, self.socket)
        return enter(member, origin, name, arena_bytes, deadline, previous=previous)

    def close(self) -> None:
        """Call after all sessions: lets the daemon end."""
        if self._anchor is not None:
            self._anchor.close()
        if self._daemon is not None:
            self._daemon.close()
        self._anchor = self._daemon = None

    def abandon(self) -> None:
        """In a forked child: everything belongs to the parent."""
        if self._anchor is not None:
            self._anchor.close()
        if self._daemon is not None:
            self._daemon.abandon()
        self._anchor = self._daemon = None
