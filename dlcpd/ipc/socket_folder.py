"""A folder private to this user, which holds the socket of a private daemon.

Other users can neither connect to the socket nor take its name. The processes that use the folder
hold it open under a shared lock, and the last of them removes it. Folders of killed processes,
whose lock is free, are removed when the next folder is made.
"""

import fcntl
import os
import re
import secrets
import socket
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final, Self

from dlcpd.ipc.held_folder import HeldFolder

SOCKET: Final = "daemon"
NAME: Final = re.compile(r"dlcp-[0-9a-f]{16}")
BACKLOG: Final = 4096  # connections not yet accepted: the default limit of the kernel
MAX_PATH: Final = 107  # bytes of sun_path without its NUL
MAX_LOOKS: Final = 4096  # entries of a folder in which all users may create some
MAX_SWEPT: Final = 64  # folders removed at one start
TRIES: Final = 8  # another process that sweeps may take a new folder for an abandoned one


class SocketFolder:
    """Takes over `descriptor`, that of a folder which its creator has locked."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self.folder = HeldFolder(descriptor, path)

    @classmethod
    def make(cls, root: str) -> Self:
        """A new folder in `root`. Raises: OSError that names the reason."""
        with HeldFolder.open(root, shared=True) as parent:
            path = parent.path / f"dlcp-{'0' * 16}" / SOCKET
            if len(os.fsencode(path)) > MAX_PATH or not str(path).isprintable():
                raise OSError(f"{root}: the path of a socket has {MAX_PATH} B at most")
            _sweep(parent)
            for _ in range(TRIES):
                made = cls._new(parent)
                if made is not None:
                    return made
        raise OSError(f"{root}: what is made there is removed at once")

    @classmethod
    def _new(cls, parent: HeldFolder) -> Self | None:
        """None: another process took the folder for an abandoned one."""
        name = f"dlcp-{secrets.token_hex(8)}"
        os.mkdir(name, 0o700, dir_fd=parent.descriptor)
        with suppress(FileNotFoundError, BlockingIOError):
            made = parent.folder(name)
            try:
                fcntl.flock(made.descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                parent.status(name)
            except BaseException:
                made.close()
                raise
            return cls(made.descriptor, made.path)
        return None

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


def _sweep(parent: HeldFolder) -> None:
    """Remove the folders that killed processes of this user left behind."""
    for name in islice(_left(parent), MAX_SWEPT):
        with suppress(OSError), parent.folder(name) as folder:
            fcntl.flock(folder.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            folder.remove(SOCKET, missing_ok=True)
            os.rmdir(name, dir_fd=parent.descriptor)


def _left(parent: HeldFolder) -> Iterator[str]:
    """Names of folders of this user, in use or not."""
    with os.scandir(parent.descriptor) as entries:
        for entry in islice(entries, MAX_LOOKS):
            if NAME.fullmatch(entry.name):
                with suppress(OSError):
                    found = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
                        yield entry.name
