"""Temporary folders of this package's processes; those of killed processes are removed."""

import multiprocessing.util
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

from dlcpd.ipc.claimed_folder import sweep
from dlcpd.ipc.scratch import Scratch, temporary

_PREFIXES: Final = r"dlcp-lab-\d+-"


def scratch_folder() -> Scratch:
    """A new folder, removed with the returned object; after a SIGKILL, with the next one or by
    `cleanup`."""
    return Scratch(f"dlcp-lab-{os.getpid()}-", _PREFIXES)


@cache
def _until_the_end() -> Scratch:
    """A folder until this process ends."""
    return scratch_folder()


@contextmanager
def temporary_folders_apart() -> Iterator[None]:
    """Put temporary folders of this process and its children into one folder, so that those of
    other processes are not counted as leaks."""
    tempfile.tempdir = _until_the_end().name
    multiprocessing.util.get_temp_dir()  # its folder lasts as long
    tempfile.tempdir = None
    before = os.environ.get("TMPDIR")
    with scratch_folder() as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        try:
            yield
        finally:
            tempfile.tempdir = None  # looked up again
            os.environ.pop("TMPDIR")
            if before is not None:
                os.environ["TMPDIR"] = before


def cleanup() -> list[str]:
    """Remove the folders of dead processes of this user; returns their names."""
    with temporary() as parent:
        return sweep(parent, _PREFIXES)
