"""A folder private to this user, which holds the socket of a private daemon.

Other users can neither connect to the socket nor take its name. The processes that use the folder
claim it (claimed_folder.py), and the last of them removes it. A folder of killed processes is
removed by the client that sees its daemon end, or at the next start of a private daemon.
"""

import os
import re
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from dlcpd.ipc import claimed_folder
from dlcpd.ipc.claimed_folder import RANDOM, claim
from dlcpd.ipc.held_folder import HeldFolder

SOCKET: Final = "daemon"
PREFIX: Final = "dlcp-"
NAME: Final = re.compile(PREFIX + RANDOM)
BACKLOG: Final = 4096  # connections not yet accepted: the default limit of the kernel
MAX_PATH: Final = 107  # bytes of sun_path without its NUL


class SocketFolder:
    """Takes over `descriptor`, that of a folder which its creator has locked."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self.folder = HeldFolder(descriptor, path)

    @classmethod
    def make(cls, root: str) -> Self:
        """A new folder in `root`. Raises: OSError that names the reason."""
        with HeldFolder.open(root, shared=True) as parent:
            path = parent.path / f"dlcp-x{'0' * 8}" / SOCKET
            if len(os.fsencode(path)) > MAX_PATH or not str(path).isprintable():
                raise OSError(f"{root}: the path of a socket has {MAX_PATH} B at most")
            made = claim(parent, PREFIX)
        return cls(made.descriptor, made.path)

    @property
    def address(self) -> str:
        """Path of the socket."""
        return str(self.folder.path / SOCKET)

    def listen(self) -> socket.socket:
        """A listening SEQPACKET socket. Raises: OSError."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            sock.bind(self.address)
            sock.listen(BACKLOG)
        except OSError:
            sock.close()
            raise
        return sock

    def let_go(self) -> None:
        """Leave the folder to another process that holds it."""
        self.folder.close()

    def remove(self) -> None:
        """Remove socket and folder; no process connects any more."""
        with suppress(OSError):
            self.folder.remove(SOCKET, missing_ok=True)
            self.folder.path.rmdir()
        self.folder.close()


def sweep(roots: Iterable[str | Path]) -> None:
    """Remove the folders that killed processes of this user left in `roots`; those which another
    user could exchange are passed over."""
    for root in roots:
        with suppress(OSError), HeldFolder.open(root, shared=True) as parent:
            claimed_folder.sweep(parent, PREFIX)
