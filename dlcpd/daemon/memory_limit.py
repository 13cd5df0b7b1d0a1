"""How much memory this process may have: its control groups' limits, or what the machine has."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CGROUPS: Final = Path("/sys/fs/cgroup")
MEMBERSHIP: Final = Path("/proc/self/cgroup")
VERSION_2: Final = ("memory.max", "memory.high")
VERSION_1: Final = ("memory.limit_in_bytes",)


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """`size` bytes, set by `source`; `group`: for this daemon and what else is in its group."""

    size: int
    source: str
    group: bool


def memory_limit(cgroups: Path = CGROUPS, membership: Path = MEMBERSHIP) -> MemoryLimit:
    """The lowest limit of the process's memory groups and all above them; the memory of the
    machine where none is lower."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    lowest = MemoryLimit(machine, "the machine's memory", group=False)
    for file in _files(cgroups, membership):
        size = _limit(file)
        if size is not None and size < lowest.size:
            lowest = MemoryLimit(size, str(file), group=True)
    return lowest


def _files(cgroups: Path, membership: Path) -> Iterator[Path]:
    """Where limits may stand, of version 2 and 1."""
    try:
        rows = [row.split(":", 2) for row in membership.read_text().splitlines()]
    except OSError:
        return
    for _, controllers, path in (row for row in rows if len(row) == 3):
        if not controllers:
            yield from _upwards(cgroups, path, VERSION_2)
        elif "memory" in controllers.split(","):
            yield from _upwards(cgroups / "memory", path, VERSION_1)


def _upwards(root: Path, path: str, names: tuple[str, ...]) -> Iterator[Path]:
    """In a container the path may be the host's, and only the mount point is there."""
    below = Path(path.lstrip("/"))
    for folder in (below, *below.parents) if str(below) != "." else (below,):
        if ".." not in folder.parts:
            yield from (root / folder / name for name in names)


def _limit(file: Path) -> int | None:
    """Bytes; None where there is no limit."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # not there, or "max"
        return None
