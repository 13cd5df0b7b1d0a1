"""The lock beside a session socket's file: who holds it may look at that file, and replace it.

Two daemons that start at once over the file of one that was killed would each take it for stale,
and each the other's fresh socket with it. A daemon holds the lock as long as it lives.
"""

import fcntl
import os
from pathlib import Path
from typing import Final, Self

from dlcpd.contract.errors import AddressUnavailable
from dlcpd.ipc.held_folder import HeldFolder

SUFFIX: Final = ".lock"
TRIES: Final = 8  # a daemon that ends removes the file that another has opened already


class SocketLock:
    """Of the socket in `folder`, which it holds open. `name` is that of the socket's file.

    Raises: AddressUnavailable where another daemon has it; OSError.
    """

    def __init__(self, folder: HeldFolder, name: str) -> None:
        self._folder, self._name = folder, name
        self._descriptor = self._taken()

    @classmethod
    def of(cls, path: Path) -> Self:
        """Take the lock of the socket at `path`. Raises: as the class."""
        folder = HeldFolder.open(path.parent, make=0o755, shared=True)
        try:
            return cls(folder, path.name)
        except BaseException:
            folder.close()
            raise

    def release(self) -> None:
        """Remove the lock's file and let the next daemon have its place."""
        if self._descriptor >= 0:
            self._folder.remove(self._name + SUFFIX, missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1
            self._folder.close()

    def _taken(self) -> int:
        for _ in range(TRIES):
            descriptor = self._folder.descriptor_of(self._name + SUFFIX, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                break
            if self._current(descriptor):
                return descriptor
            os.close(descriptor)
        where = self._folder.path / self._name
        raise AddressUnavailable(
            f"[daemon] socket {where}: another daemon answers on it or is about to; stop it or "
            f"choose another path"
        )

    def _current(self, descriptor: int) -> bool:
        """Whether what is locked is still what has the name."""
        try:
            named = self._folder.status(self._name + SUFFIX)
        except FileNotFoundError:
            return False
        return named.st_ino == os.fstat(descriptor).st_ino
