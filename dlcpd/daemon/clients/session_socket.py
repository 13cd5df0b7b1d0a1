"""The sockets through which clients reach a daemon, in its three forms."""

import os
import socket
from pathlib import Path

from dlcpd.daemon.clients.access import Access
from dlcpd.daemon.clients.server import Server, listen, protect
from dlcpd.daemon.clients.socket_lock import SocketLock


def _identity(file: str) -> tuple[int, int] | None:
    """None: there is no such file, or it is of the abstract namespace."""
    try:
        found = os.stat(file)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


class SessionSocket:
    """Opens the session socket, and applies changed permissions to it.

    | form | session socket |
    |---|---|
    | alone | a file that the daemon makes and removes |
    | under a service manager | a file that the manager made and keeps |
    | private | an inherited connection, and a listener for the other ranks of the machine |
    """

    def __init__(
        self, server: Server, file: Path, access: Access, claimed: SocketLock | None = None
    ) -> None:
        """`file`: path of the session socket that a daemon alone makes; `claimed`: its lock."""
        self._server, self._file, self._access, self._claimed = server, file, access, claimed
        self._manager_file = ""  # of the session socket that a service manager made, and keeps
        self._there: tuple[int, int] | None = None  # device and inode of the file
        self.name = str(file)  # of the session socket, for the log

    def serve_private(self, client: socket.socket, listener: socket.socket | None) -> None:
        """Serve the connected `client`, and those that come through `listener`."""
        self.name = "embedded"
        self._server.adopt(client)
        if listener is not None:
            self._server.serve(listener)

    def serve(self, listener: socket.socket | None) -> None:
        """Serve the clients of the service manager's `listener`, or without one of the own file.

        Raises: AddressUnavailable, BadConfig.
        """
        if listener is None:
            self._server.serve(listen(self._file, self._access, self._claimed), self._file)
        else:
            self.name = self._manager_file = str(listener.getsockname())
            self._server.serve(listener)
        self._there = _identity(self.name)

    @property
    def problem(self) -> str:
        """Why no client can connect any more; empty: they can, as far as the file tells."""
        if self._there in (None, _identity(self.name)):
            return ""
        return f"the session socket {self.name} was removed or replaced: clients cannot connect"

    def admit(self, access: Access) -> None:
        """Admit the users of `access` from now on. Raises: OSError."""
        if not self._manager_file:  # else the manager decides about the file
            protect(self._file, access)
        self._server.admit(access.users)

    def leave_waiting(self) -> None:
        """Before a drain: new clients wait for the next daemon that the service manager starts; a
        daemon alone refuses them itself."""
        if self._manager_file:
            self._server.leave_waiting()
