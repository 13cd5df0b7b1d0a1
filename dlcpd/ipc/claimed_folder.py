"""Folders that processes claim by a lock, so that those of killed processes are found and removed.

A process that uses such a folder holds it open under a shared lock, which the kernel frees with the
process. So a folder whose lock is free belongs to no live process, whatever ids processes have.
"""

import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Final

from dlcpd.ipc.held_folder import PRIVATE_FOLDER, HeldFolder

# The end of each name: short, for a socket's path in the folder has 107 B at most; with a letter,
# for a user may name a folder by a date.
_MARK: Final = "x"
_BYTES: Final = 4
RANDOM: Final = f"{_MARK}[0-9a-f]{{{2 * _BYTES}}}"
MAX_LOOKS: Final = 4096  # entries of a folder in which all users may create some
MAX_SWEPT: Final = 64  # folders removed by one sweep
TRIES: Final = 8  # another process that sweeps may take a new folder for an abandoned one


def claim(parent: HeldFolder, prefix: str) -> HeldFolder:
    """A new folder in `parent`, of mode 0700, claimed until the returned object is closed in every
    process that has it. Raises: OSError."""
    for _ in range(TRIES):
        name = f"{prefix}{_MARK}{secrets.token_hex(_BYTES)}"
        # It exists, or another process takes it for an abandoned one.
        with suppress(FileExistsError, FileNotFoundError, BlockingIOError):
            os.mkdir(name, PRIVATE_FOLDER, dir_fd=parent.descriptor)
            made = parent.folder(name)
            try:
                fcntl.flock(made.descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                parent.status(name)
            except BaseException:
                made.close()
                raise
            return made
    raise OSError(f"{parent}: new folders are removed at once, or exist")


def sweep(parent: HeldFolder, prefix: str) -> list[str]:
    """Remove the folders of this user that no process claims, with all that they hold; returns
    their names. `prefix`: a regular expression. No link is followed."""
    removed: list[str] = []
    for name in _left(parent, re.compile(prefix + RANDOM)):
        with suppress(OSError), parent.folder(name) as folder:
            fcntl.flock(folder.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(name, dir_fd=parent.descriptor)
            removed.append(name)
        if len(removed) == MAX_SWEPT:
            break
    return removed


def _left(parent: HeldFolder, name: re.Pattern[str]) -> Iterator[str]:
    """Names of folders of this user, claimed or not."""
    with os.scandir(parent.descriptor) as entries:
        for entry in islice(entries, MAX_LOOKS):
            if name.fullmatch(entry.name):
                with suppress(OSError):
                    found = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
                        yield entry.name
