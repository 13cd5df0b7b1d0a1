"""The lock file beside a session socket: its holder may check and replace the socket's file.

If two daemons start at once after a killed one, each would take the socket's file for stale, and
remove the new socket of the other. A daemon holds the lock as long as it lives.
"""

import fcntl
import os
from pathlib import Path
from typing import Final, Self

from dlcpd.contract.errors import AddressUnavailable
from dlcpd.ipc.held_folder import HeldFolder

SUFFIX: Final = ".lock"
TRIES: Final = 8  # an ending daemon may remove the file after another opened it


class SocketLock:
    """The lock of the socket file `name` in `folder`, which it keeps open.

    Raises: AddressUnavailable if another daemon holds the lock; OSError.
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
        """Remove the lock's file, and unlock."""
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
        """Whether the locked file is still the file of that name."""
        try:
            named = self._folder.status(self._name + SUFFIX)
        except FileNotFoundError:
            return False
        return named.st_ino == os.fstat(descriptor).st_ino
