"""A memory cgroup of a test's own, where this machine lets one be made (version 2, or 1)."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class MemoryGroup:
    """Its folder, and the names of its files."""

    folder: Path
    version: int

    def add(self, pid: int) -> None:
        """What the process touches from now on is charged here."""
        (self.folder / "cgroup.procs").write_text(str(pid))

    @property
    def used(self) -> int:
        """Bytes that are charged."""
        name = "memory.current" if self.version == 2 else "memory.usage_in_bytes"
        return int((self.folder / name).read_text())

    @property
    def killed(self) -> int:
        """Processes that the kernel has killed for want of memory."""
        name = "memory.events" if self.version == 2 else "memory.oom_control"
        rows = dict(line.split() for line in (self.folder / name).read_text().splitlines())
        return int(rows["oom_kill"])


@contextlib.contextmanager
def memory_group(limit: int) -> Iterator[MemoryGroup]:
    """A group of at most `limit` bytes. Skips the test where there can be none. Its processes
    must have ended when it closes."""
    group = _made()
    if group is None:
        pytest.skip("no memory cgroup can be made here: /sys/fs/cgroup is not ours to write to")
    name = "memory.max" if group.version == 2 else "memory.limit_in_bytes"
    try:
        (group.folder / name).write_text(str(limit))
        yield group
    finally:
        group.folder.rmdir()


def _made() -> MemoryGroup | None:
    name = f"dlcpd-test-{os.getpid()}"
    for version, root, file in (
        (2, ROOT, "memory.max"),
        (1, ROOT / "memory", "memory.limit_in_bytes"),
    ):
        folder = root / name
        try:
            folder.mkdir()
        except OSError:
            continue
        if (folder / file).exists():
            return MemoryGroup(folder, version)
        folder.rmdir()
    return None
