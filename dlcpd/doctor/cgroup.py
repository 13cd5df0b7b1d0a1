"""Limits of this process's control groups: CPU time and memory. Versions 1 and 2."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
SELF: Final = Path("/proc/self/cgroup")
UNLIMITED: Final = 1 << 60  # bytes; version 1 writes 2^63 less a page for "none"


def cpu_quota(root: Path = ROOT, groups: str | None = None) -> float | None:
    """CPUs that the group may use on average: the least of its and its parents' quota; None:
    all."""
    quotas = [_quota(folder) for folder in folders("cpu", root, groups)]
    return min((quota for quota in quotas if quota is not None), default=None)


def memory_left(root: Path = ROOT, groups: str | None = None) -> int | None:
    """Bytes that the group may still take: the least of its and its parents'; None: no limit."""
    rests = [_rest(folder) for folder in folders("memory", root, groups)]
    return min((rest for rest in rests if rest is not None), default=None)


def folders(controller: str, root: Path, groups: str | None = None) -> Iterator[Path]:
    """Folders of this process's control groups, its own first. `groups`: the text of SELF."""
    for line in (_own_groups() if groups is None else groups).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        base = root / controller if controllers else root
        inside = PurePosixPath(path.lstrip("/"))
        for part in (inside, *inside.parents):
            yield base / part


def _own_groups() -> str:
    try:
        return SELF.read_text()
    except OSError:
        return ""


def _quota(folder: Path) -> float | None:
    words = _words(folder / "cpu.max")
    if not words:
        words = _words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us")
    if len(words) != 2 or not words[0].isdigit() or not int(words[1]):
        return None  # "max", or -1 in version 1
    return int(words[0]) / int(words[1])


def _rest(folder: Path) -> int | None:
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        words = _words(folder / limit) + _words(folder / used)
        if len(words) == 2 and words[0].isdigit() and int(words[0]) < UNLIMITED:
            return max(int(words[0]) - int(words[1]), 0)
    return None


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []
