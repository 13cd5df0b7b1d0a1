"""Temporary folders that carry the id of their process, so that a killed one's can be found."""

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Final

_OURS: Final = re.compile(r"dlcp-lab-(\d+)-\w+")


def scratch_folder() -> "tempfile.TemporaryDirectory[str]":
    """A new one, which ends with its object; `cleanup` removes it after a SIGKILL."""
    return tempfile.TemporaryDirectory(prefix=f"dlcp-lab-{os.getpid()}-")


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
