"""Temporary folders that carry the id of their process, so that a killed one's can be found."""

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
    """A new one, which ends with its object; `cleanup` removes it after a SIGKILL."""
    return tempfile.TemporaryDirectory(prefix=f"dlcp-lab-{os.getpid()}-")


@contextmanager
def temporary_folders_apart() -> Iterator[None]:
    """Temporary folders of this process, and of those that it starts, lie in one of their own: what
    somebody else makes and leaves meanwhile is not taken for theirs."""
    multiprocessing.util.get_temp_dir()  # which lasts as long as this process
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
    """Remove what dead processes of this user left behind; gives the folders removed."""
    left = [path for path in Path(tempfile.gettempdir()).iterdir() if _is_left(path)]
    for path in left:
        shutil.rmtree(path, ignore_errors=True)  # another cleanup may be at it as well
    return left


def _is_left(path: Path) -> bool:
    found = _OURS.fullmatch(path.name)
    if found is None or Path("/proc", found[1]).exists():
        return False
    try:
        return path.lstat().st_uid == os.getuid()
    except FileNotFoundError:
        return False
