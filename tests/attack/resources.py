"""What a process uses, from /proc; and a process that gets no more descriptors."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MB = 1_000_000


class Memory:
    """Resident memory of a process since this object was made, in bytes."""

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")
        (self._folder / "clear_refs").write_text("5")  # the peak begins anew
        self.base = self._read("VmRSS")

    @property
    def growth(self) -> int:
        """The peak above the base."""
        return max(self._read("VmHWM") - self.base, 0)

    def _read(self, name: str) -> int:
        status = (self._folder / "status").read_text().splitlines()
        [line] = [line for line in status if line.startswith(name + ":")]
        return int(line.split()[1]) * 1024


def cpu_seconds(pid: int) -> float:
    """User and system time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def without_descriptors(*pids: int) -> Iterator[None]:
    """These processes may keep what they have, and get nothing more."""
    before = {pid: resource.prlimit(pid, resource.RLIMIT_NOFILE) for pid in pids}
    try:
        for pid, (_, hard) in before.items():
            taken = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
            free = next(number for number in range(len(taken) + 1) if number not in taken)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, hard))
        yield
    finally:
        for pid, limits in before.items():
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
