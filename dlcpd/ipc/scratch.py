"""Temporary folders of a process, claimed by it (claimed_folder.py)."""

import os
import re
import shutil
import tempfile
import weakref
from pathlib import Path

from dlcpd.ipc.claimed_folder import claim, sweep
from dlcpd.ipc.held_folder import HeldFolder


class Scratch:
    """A temporary folder of this process: a context manager that yields its path, removed with the
    block, this object or the process; after a SIGKILL, by the next one of the same prefix."""

    def __init__(self, prefix: str, swept: str = "") -> None:
        """`swept`: a regular expression for the prefixes of folders to remove first; by default
        `prefix`. Raises: OSError."""
        with temporary() as parent:
            sweep(parent, swept or re.escape(prefix))
            held = claim(parent, prefix)
        self.name = str(held.path)
        self._end = weakref.finalize(self, _remove, held)

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_: object) -> None:
        self._end()


def _remove(held: HeldFolder) -> None:
    shutil.rmtree(held.path, ignore_errors=True)
    held.close()


def temporary() -> HeldFolder:
    """The folder of temporary files, which other users may share. Raises: OSError."""
    path = Path(tempfile.gettempdir())
    return HeldFolder(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), path)
