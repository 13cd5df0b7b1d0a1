"""Finds private daemons, which trainings of this user started.

Each listens in its own folder (dlcpd/ipc/socket_folder.py). The kernel lists the paths for this
network namespace: a training in a container is found only from inside of it.
"""

import os
import re
import socket
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dlcpd.contract.errors import BadConfig
from dlcpd.daemon.config.tables import DaemonTable
from dlcpd.ipc.socket_folder import NAME, SOCKET

SOCKETS: Final = Path("/proc/net/unix")
MAX_DOORS: Final = 256  # a host has at most as many trainings as GPUs
# A listening (00010000) SOCK_SEQPACKET (0005) at a private daemon's path: proc_pid_net(5).
_DOOR: Final = re.compile(
    rf"^\S+: \S+ \S+ 00010000 0005 \S+ +\d+ (/(?:.*/)?{NAME.pattern}/{SOCKET})$", re.MULTILINE
)
_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid


@dataclass(frozen=True, slots=True)
class Private:
    """A private daemon that answers. `pid`: the process that started it."""

    name: str  # path of its socket, as --socket takes it
    pid: int


def reach(name: str | None) -> str:
    """The path to connect to. None: the usual socket, or, if none listens there, the private daemon
    of this user.

    Raises: BadConfig, which names them, if there are several.
    """
    if name is not None:
        return name
    usual = DaemonTable().socket
    if _listener(usual) is not None:
        return usual
    found = list(mine())
    if len(found) > 1:
        names = ", ".join(f"{one.name} (started by process {one.pid})" for one in found)
        raise BadConfig(f"{len(found)} private daemons answer: choose one with --socket: {names}")
    return found[0].name if found else usual


def mine() -> Iterator[Private]:
    """The private daemons of this user; for root of all users, its own first."""
    user = os.getuid()
    listed = sorted(set(_DOOR.findall(SOCKETS.read_text(errors="replace"))))
    owners = ((name, _owner(name)) for name in listed)
    found = [(owner != user, name) for name, owner in owners if user in (0, owner)]
    for _, name in sorted(found)[:MAX_DOORS]:
        listener = _listener(name)
        if listener is not None and user in (0, listener[1]):
            yield Private(name, listener[0])


def _owner(name: str) -> int | None:
    """User id of the owner of a socket's folder; None if others may enter it: any user can make the
    kernel list such a path."""
    try:
        found = os.lstat(os.path.dirname(name))
    except OSError:
        return None
    return None if not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o077 else found.st_uid


def _listener(where: str) -> tuple[int, int] | None:
    """Process id and user id of the listener; None: none, or this user may not connect."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.setblocking(False)  # a full queue must not block
        try:
            sock.connect(where)
        except OSError:
            return None
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(raw)
    return pid, user
