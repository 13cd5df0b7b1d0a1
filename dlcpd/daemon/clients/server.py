"""The server of the session socket: admits clients by user and number."""

import asyncio
import contextlib
import os
import socket
from pathlib import Path
from typing import Final

from dlcpd.contract.errors import (
    AddressUnavailable,
    BadConfig,
    DlcpError,
    NotPermitted,
    SessionClosed,
    TooMany,
)
from dlcpd.contract.frames import encode
from dlcpd.daemon import log
from dlcpd.daemon.clients.access import Access
from dlcpd.daemon.clients.connection import (
    Connection,
    ConnectionState,
    Reception,
    credentials,
    refusal,
)
from dlcpd.daemon.clients.socket_lock import SocketLock
from dlcpd.daemon.fair_table import FairTable
from dlcpd.ipc.accepting import AcceptLoop, Short
from dlcpd.ipc.held_folder import holding
from dlcpd.ipc.safe_path import UnsafePath
from dlcpd.ipc.seqpacket import receive_now, send_now
from dlcpd.ipc.socket_folder import BACKLOG

SPARE_CONNECTIONS: Final = 64  # beyond max_sessions: status requests and clients not yet joined
MAX_SILENT: Final = 64  # connections before Hello; not counted in max_connections
HELLO_TIMEOUT: Final = 10.0  # seconds until a connection without Hello is closed
PARTING: Final = 1.0  # seconds a refused connection stays open, so that the answer can be read


class SessionListener(socket.socket):
    """A socket that holds the lock of its file until it is closed."""

    lock: SocketLock | None = None

    def close(self) -> None:
        """Close the socket, then unlock: another daemon may take the path."""
        super().close()
        lock, self.lock = self.lock, None
        if lock is not None:
            with contextlib.suppress(OSError):
                lock.release()


def claim(path: Path) -> SocketLock:
    """Lock the path of a session socket, so that no other daemon serves there until `release`, and
    remove a stale file. Its directory is made if the parent exists, as for /run/dlcpd after each
    boot.

    Raises: AddressUnavailable.
    """
    _make_directory(path)
    try:
        lock = SocketLock.of(path)
        try:
            _clear(path)
        except BaseException:
            lock.release()
            raise
    except OSError as exc:
        raise AddressUnavailable(f"[daemon] socket {path}: {exc.strerror or exc}") from exc
    return lock


def listen(path: Path, access: Access, claimed: SocketLock | None = None) -> SessionListener:
    """A listening SEQPACKET socket at `path`. It owns `claimed`, the lock of `path`; None: as
    `claim`.

    Raises: AddressUnavailable; BadConfig for a group that this user may not set.
    """
    sock = SessionListener(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.lock = claimed or claim(path)
        sock.bind(str(path))
        protect(path, access)
        sock.listen(BACKLOG)  # no client can connect earlier: mode and group are set
    except OSError as exc:
        sock.close()
        raise AddressUnavailable(f"[daemon] socket {path}: {exc.strerror or exc}") from exc
    except BadConfig:
        path.unlink()
        sock.close()
        raise
    except BaseException:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def protect(path: Path, access: Access) -> None:
    """Set mode and group of a socket's file as `access` says.

    Raises: OSError; BadConfig for a group that this user may not set.
    """
    path.chmod(access.mode)
    try:
        os.chown(path, -1, access.group)
    except PermissionError as exc:
        raise BadConfig(
            f"[daemon] socket_group: user id {os.getuid()} may not give {path} to group id "
            f"{access.group}: run dlcpd as root or as a member of that group"
        ) from exc


def _make_directory(path: Path) -> None:
    folder = path.parent
    if folder.is_dir():
        return  # SocketLock checks the owner of it and of each folder above
    try:
        with holding(folder, shared=True) as (above, name):
            above.folder(name, make=0o755).close()
    except UnsafePath as exc:
        raise AddressUnavailable(f"[daemon] socket {path}: {exc.strerror}") from exc
    except OSError as exc:
        raise AddressUnavailable(
            f"[daemon] socket {path}: its directory is not there and cannot be made: "
            f"{exc.strerror}; make it for user id {os.getuid()} (install -d -o {os.getuid()} "
            f"{folder}), or choose a socket= elsewhere"
        ) from exc


def _clear(path: Path) -> None:
    """Remove the socket file of a daemon that is gone.

    Raises: AddressUnavailable if the socket is in use, or the file is no socket.
    """
    if not path.exists():
        return
    if path.is_dir():
        raise AddressUnavailable(
            f"[daemon] socket {path}: is a directory; give the path of a file in it"
        )
    if not path.is_socket():
        raise AddressUnavailable(f"[daemon] socket {path}: a file is in the way; remove it")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            return
        except OSError as exc:  # a full backlog, another socket type: in use
            raise AddressUnavailable(f"[daemon] socket {path} is in use: {exc.strerror}") from exc
    raise AddressUnavailable(
        f"[daemon] socket {path}: another daemon answers on it; stop it or choose another path"
    )


class Server:
    """Accepts clients and keeps their connections.

    Connecting cannot exhaust the places. A connection before Hello makes room for the next one. At
    the limit, the oldest connection without a session, of the user with most of these, makes room
    for a client of another user.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        reception: Reception,
        *,
        users: frozenset[int] | None,
        max_connections: int,
    ) -> None:
        self._loop, self._reception = loop, reception
        self._users, self._max_connections = users, max_connections
        self._listener: socket.socket | None = None
        self._accepting: AcceptLoop | None = None
        self._file: Path | None = None
        self._connections: set[Connection] = set()
        self._silent: FairTable[Connection] = FairTable(MAX_SILENT)
        self._hello_due: dict[Connection, asyncio.TimerHandle] = {}
        # Greeted, without a session. Never full: connections are counted when they connect.
        self._idle: FairTable[Connection] = FairTable(max_connections + MAX_SILENT + 1)
        self._parting: dict[socket.socket, asyncio.TimerHandle] = {}  # the oldest first

    def __len__(self) -> int:
        """Number of connected clients."""
        return len(self._connections)

    @property
    def greeted(self) -> bool:
        """Whether a client knows the daemon's address, and has no session yet."""
        return bool(len(self._idle))

    def serve(self, listener: socket.socket, file: Path | None = None) -> None:
        """Accept on `listener` until `close`, which removes `file`; None: no file, or another
        process owns it.
        """
        self._listener, self._file = listener, file
        self._accepting = AcceptLoop(
            self._loop, listener, self._accepted, make_room=self._silent_leaves, told=_tell_short
        )

    def admit(self, users: frozenset[int] | None) -> None:
        """Admit these users from now on; connected clients stay."""
        self._users = users

    def leave_waiting(self) -> None:
        """Stop accepting: new clients wait in the backlog for the next daemon on this listener."""
        if self._listener and self._accepting:
            self._accepting.close()
            self._listener.close()
            self._listener = self._accepting = None

    def adopt(self, sock: socket.socket) -> Connection:
        """Serve a client that is already connected, without a check of its user."""
        connection = Connection(self._loop, sock, self._reception, self._moved)
        self._connections.add(connection)
        return connection

    def forget(self, connection: Connection) -> None:
        """A connection closed itself."""
        self._connections.discard(connection)

    def close(self, why: DlcpError) -> None:
        """Tell every client why, and close everything."""
        if self._file:  # before the listener, which holds its lock, is closed
            with contextlib.suppress(OSError):
                self._file.unlink()
            self._file = None
        self.leave_waiting()
        for connection in list(self._connections):
            connection.lost(why)
        for sock in list(self._parting):
            self._part(sock)

    def _accepted(self, sock: socket.socket, _address: object) -> None:
        """Raises: OSError if the client has gone; then the caller still owns `sock`."""
        if refused := self._objection(sock):
            self._turn_away(sock, refused)
        else:
            self._await_hello(self.adopt(sock))

    def _await_hello(self, connection: Connection) -> None:
        if leaves := self._silent.add(connection.uid, connection):
            self._make_room(leaves)
        late = SessionClosed(f"no Hello came within {HELLO_TIMEOUT:g} s")
        due = self._loop.call_later(HELLO_TIMEOUT, connection.lost, late)
        self._hello_due[connection] = due

    def _moved(self, connection: Connection) -> None:
        """The state of a connection changed."""
        self._silent.discard(connection)
        self._idle.discard(connection)
        if due := self._hello_due.pop(connection, None):
            due.cancel()
        if connection.state is ConnectionState.GREETED:
            self._idle.add(connection.uid, connection)

    def _make_room(self, leaves: Connection) -> None:
        leaves.lost(TooMany("others wait to connect, and this connection has no session"))

    def _silent_leaves(self) -> bool:
        """Close the oldest connection before Hello; False: there is none."""
        silent = self._silent.oldest()
        if silent:
            self._make_room(silent)
        return silent is not None

    def _objection(self, sock: socket.socket) -> DlcpError | None:
        pid, uid = credentials(sock)
        if self._users is not None and uid not in self._users:
            log.warning("not_permitted", uid=uid, pid=pid)
            return NotPermitted(
                f"user id {uid} may not use this daemon; its [daemon] allowed_users says who may"
            )
        if len(self._connections) - len(self._silent) < self._max_connections:
            return None
        idle = self._idle.oldest()
        if idle is None or idle.uid == uid:
            return TooMany(f"{self._max_connections} clients are connected, the most allowed")
        self._make_room(idle)
        return None

    def _turn_away(self, sock: socket.socket, error: DlcpError) -> None:
        """Send the error and close later: closing with an unread Hello would destroy the answer."""
        self._reception.count(f"refused_{error.code}")
        with contextlib.suppress(OSError):
            send_now(sock, encode(refusal(error)))
        if len(self._parting) >= SPARE_CONNECTIONS:  # the oldest has had most time to read
            self._part(next(iter(self._parting)))
        self._parting[sock] = self._loop.call_later(PARTING, self._part, sock)

    def _part(self, sock: socket.socket) -> None:
        self._parting.pop(sock).cancel()
        with contextlib.suppress(OSError):
            receive_now(sock)  # its Hello: left unread, the client would see a reset
        with contextlib.suppress(OSError):
            sock.close()


def _tell_short(why: Short) -> None:
    log.error("accept_failed", text=why)
