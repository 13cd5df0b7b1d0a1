"""Memory limits of this process's control groups, and the memory left below them."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

CGROUPS: Final = Path("/sys/fs/cgroup")
MEMBERSHIP: Final = Path("/proc/self/cgroup")
SWAP: Final = Path("/proc/meminfo")
HARD_2, HARD_1 = "memory.max", "memory.limit_in_bytes"  # above it the kernel kills
VERSION_2: Final = (HARD_2, "memory.high")
VERSION_1: Final = (HARD_1,)
USAGE: Final = {HARD_2: "memory.current", HARD_1: "memory.usage_in_bytes"}
# Rows of memory.stat, of a group and all below it, that the kernel reclaims before it kills.
CACHE: Final = {
    HARD_2: ("inactive_file", "active_file", "slab_reclaimable"),
    HARD_1: ("total_inactive_file", "total_active_file"),
}


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """`size` bytes, set by `source`; `group`: for all processes of the control group."""

    size: int
    source: str
    group: bool


@dataclass(frozen=True, slots=True)
class MemoryLeft:
    """A control group may use `size` bytes more, of the `limit` bytes set by `file`."""

    size: int
    limit: int
    file: str


def memory_limit(cgroups: Path = CGROUPS, membership: Path = MEMBERSHIP) -> MemoryLimit:
    """The lowest limit of the process's memory groups and all above them; the memory of the
    machine if none is lower."""
    lowest = MemoryLimit(_machine(), "the machine's memory", group=False)
    for file in _files(cgroups, membership):
        size = _limit(file)
        if size is not None and size < lowest.size:
            lowest = MemoryLimit(size, str(file), group=True)
    return lowest


def memory_left(
    cgroups: Path = CGROUPS, membership: Path = MEMBERSHIP, swap: Path = SWAP
) -> MemoryLeft | None:
    """Bytes left in the fullest of the process's memory groups and all above them before the
    kernel kills there, plus the machine's free swap space; None without a limit."""
    machine, least = _machine(), None
    for file in _files(cgroups, membership):
        limit = _limit(file) if file.name in USAGE else None
        if limit is None or limit > machine:  # version 1 has 2**63 for no limit
            continue
        if (used := _limit(file.with_name(USAGE[file.name]))) is None:
            continue
        rows = dict(_rows(file.with_name("memory.stat")))
        size = max(0, limit - used + sum(rows.get(name, 0) for name in CACHE[file.name]))
        if least is None or size < least.size:
            least = MemoryLeft(size, limit, str(file))
    if least is None:
        return None
    return replace(least, size=least.size + (dict(_rows(swap)).get("SwapFree:", 0) << 10))


def _rows(file: Path) -> Iterator[tuple[str, int]]:
    """Names and numbers of lines `NAME NUMBER ...`."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        name, number, *_ = [*line.split(), "", ""]
        if number.isdecimal():
            yield name, int(number)


def _machine() -> int:
    """Memory of the machine, bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _files(cgroups: Path, membership: Path) -> Iterator[Path]:
    """Files that may hold limits, of cgroup versions 2 and 1."""
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
    """Files `names` of a group and all above it. In a container the path may be the host's, and
    only the mount point exists."""
    below = Path(path.lstrip("/"))
    for folder in (below, *below.parents) if str(below) != "." else (below,):
        if ".." not in folder.parts:
            yield from (root / folder / name for name in names)


def _limit(file: Path) -> int | None:
    """Bytes; None without a limit."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # not there, or "max"
        return None
