"""A folder of this user alone, for the one socket by which a private daemon is reached.

Other users can neither connect to it nor take its name. It is held open, under a shared lock, by
the processes that use it, and removed by the last of them; what killed ones left behind, the next
that makes one removes: its lock is free.
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
BACKLOG: Final = 4096  # connections not yet accepted, as the kernel allows by itself
MAX_PATH: Final = 107  # bytes of sun_path without its end
MAX_LOOKS: Final = 4096  # names of a folder in which all may make some
MAX_SWEPT: Final = 64  # folders removed at one start
TRIES: Final = 8  # another process that sweeps may take a new one for an old one


class SocketFolder:
    """Takes over `descriptor`, that of a folder which its maker has locked."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self.folder = HeldFolder(descriptor, path)

    @classmethod
    def make(cls, root: str) -> Self:
        """A new one in `root`. Raises: OSError, naming why it can be none."""
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
        """None: another process took it for one that nobody holds."""
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
        """Where to connect to."""
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
        """Leave it to another process that holds it."""
        self.folder.close()

    def remove(self) -> None:
        """Nobody connects any more."""
        with suppress(OSError):
            self.folder.remove(SOCKET, missing_ok=True)
            self.folder.path.rmdir()
        self.folder.close()


def _sweep(parent: HeldFolder) -> None:
    """Remove what processes of this user left behind that were killed."""
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
