"""Private daemons: those that trainings of this user started, which have no socket file.

They listen in the abstract namespace (dlcp_client/ipc/door.py), which belongs to a network
namespace: a training in a container is found from inside of it.
"""

import os
import re
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dlcpd.contract.errors import BadConfig
from dlcpd.daemon.config import DaemonTable

SOCKETS: Final = Path("/proc/net/unix")
# Anybody on this machine can open sockets with such names; a host has as many trainings as GPUs.
MAX_DOORS: Final = 256
# A listening (00010000) SOCK_SEQPACKET (0005) with the name of a door: proc_pid_net(5).
_DOOR: Final = re.compile(
    r"^\S+: \S+ \S+ 00010000 0005 \S+ +\d+ (@dlcp-[0-9a-f]{32})$", re.MULTILINE
)
_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid


@dataclass(frozen=True, slots=True)
class Private:
    """One that answers. `pid`: the rank that started it."""

    name: str  # as --socket takes it, "@dlcp-..."
    pid: int


def address(name: str) -> str:
    """What to connect to: a path, or an abstract socket for a name that begins with @."""
    return f"\0{name[1:]}" if name.startswith("@") else name


def reach(name: str | None) -> str:
    """As `address`. None: the usual socket; where nobody listens there, the private daemon of this
    user.

    Raises: BadConfig naming them where there are several.
    """
    if name is not None:
        return address(name)
    usual = DaemonTable().socket
    if _listener(usual) is not None:
        return usual
    found = list(mine())
    if len(found) > 1:
        names = ", ".join(f"{one.name} (started by process {one.pid})" for one in found)
        raise BadConfig(f"{len(found)} private daemons answer: choose one with --socket: {names}")
    return address(found[0].name) if found else usual


def mine() -> Iterator[Private]:
    """Those of this user; of every user for root."""
    user = os.getuid()
    for name in sorted(set(_DOOR.findall(SOCKETS.read_text(errors="replace"))))[:MAX_DOORS]:
        listener = _listener(address(name))
        if listener is not None and user in (0, listener[1]):
            yield Private(name, listener[0])


def _listener(where: str) -> tuple[int, int] | None:
    """Process and user of who listens there; None: nobody, or not for us."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.setblocking(False)  # somebody's full queue holds nobody up
        if sock.connect_ex(where):
            return None
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(raw)
    return pid, user
