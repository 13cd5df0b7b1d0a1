"""Temporary folders named by process id, so that those of killed processes are found."""

import multiprocessing.util
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_OURS: Final = re.compile(r"dlcp-lab-(\d+)-\w+")


def scratch_folder() -> "tempfile.TemporaryDirectory[str]":
    """A new folder, removed with the returned object; after a SIGKILL, by `cleanup`."""
    return tempfile.TemporaryDirectory(prefix=f"dlcp-lab-{os.getpid()}-")


@contextmanager
def temporary_folders_apart() -> Iterator[None]:
    """Put temporary folders of this process and its children into one folder, so that those of
    other processes are not counted as leaks."""
    multiprocessing.util.get_temp_dir()  # before: its folder lasts until the process ends
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


def cleanup() -> list[Path]:
    """Remove the folders of dead processes of this user; returns them."""
    left = [path for path in Path(tempfile.gettempdir()).iterdir() if _is_left(path)]
    for path in left:
        shutil.rmtree(path, ignore_errors=True)  # another cleanup may run at the same time
    return left


def _is_left(path: Path) -> bool:
    found = _OURS.fullmatch(path.name)
    if found is None or Path("/proc", found[1]).exists():
        return False
    try:
        return path.lstat().st_uid == os.getuid()
    except FileNotFoundError:
        return False
