"""An output file that an option of the command line names: written as a whole, or not at all.

Links are not followed. If root writes, the path is refused if another user may write to a folder
above it; other users may write to a shared folder.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dlcpd.contract.errors import BadConfig
from dlcpd.ipc.held_folder import HeldFolder, holding
from dlcpd.ipc.safe_path import ROOT

DEVICES: Final = (Path("/dev"), Path("/dev/fd"))  # root's: /dev/null, /dev/stdout, >(command)
FOR_ALL: Final = 0o666  # less the umask


@dataclass(frozen=True, slots=True)
class OutputFile:
    """The file at `path` that `option` names."""

    option: str
    path: Path

    def __str__(self) -> str:
        return f"{self.option} {self.path}"

    def check(self) -> None:
        """Check the path before anything is measured. Changes nothing: a run may still fail.

        Raises: BadConfig.
        """
        if self.path.is_dir():
            raise BadConfig(f"{self}: is a folder; name a file")
        if not self.path.absolute().parent.is_dir():
            raise BadConfig(f"{self}: there is no folder {self.path.parent}")
        if self._is_device:
            return
        try:
            with self._folder() as (folder, name):
                _mode_of(folder, name)
        except OSError as exc:
            raise BadConfig(f"{self}: {exc.strerror}") from exc
        if not os.access(self.path.parent, os.W_OK):
            raise BadConfig(f"{self}: user id {os.getuid()} may not write there")

    def write(self, text: str) -> None:
        """Raises: BadConfig."""
        self.write_bytes(text.encode())

    def write_bytes(self, data: bytes, mode: int | None = None) -> None:
        """`mode` of the file; None: that of the file that is replaced. Raises: BadConfig."""
        try:
            if self._is_device:
                self.path.write_bytes(data)
                return
            with self._folder() as (folder, name):
                known = _mode_of(folder, name)
                folder.replace(name, data, known if mode is None else mode)
        except OSError as exc:
            raise BadConfig(f"{self}: cannot be written: {exc.strerror}") from exc

    @contextmanager
    def _folder(self) -> Iterator[tuple[HeldFolder, str]]:
        """Raises: OSError."""
        if os.geteuid() == ROOT:
            with holding(self.path, shared=True) as held:
                yield held
            return
        above = self.path.absolute().parent
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        with HeldFolder(os.open(above, flags), above) as folder:
            yield folder, self.path.name

    @property
    def _is_device(self) -> bool:
        return self.path.absolute().parent in DEVICES


def _mode_of(folder: HeldFolder, name: str) -> int:
    """Mode of the file to replace, or FOR_ALL. Raises: UnsafePath if it is a link or no file."""
    with suppress(FileNotFoundError):
        descriptor = folder.descriptor_of(name, os.O_PATH)
        try:
            return stat.S_IMODE(os.fstat(descriptor).st_mode)
        finally:
            os.close(descriptor)
    return FOR_ALL
