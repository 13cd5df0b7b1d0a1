"""What the kernel counts of a process: CPU time, memory, and how often it has run."""

import os
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")  # of CPU time per second
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")  # bytes
# Fields of /proc/PID/stat after the name, which may have spaces: proc_pid_stat(5).
_USER, _SYSTEM, _RESIDENT = 11, 12, 21

_MOST: Final = 200  # bytes: three numbers


def usage(pid: int) -> tuple[float, int] | tuple[None, None]:
    """Seconds of CPU time, and bytes of resident memory; None if the process has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None, None
    fields = text.rpartition(")")[2].split()
    ticks = int(fields[_USER]) + int(fields[_SYSTEM])
    return ticks / _TICKS, int(fields[_RESIDENT]) * _PAGE


def runs(pid: int) -> bytes:
    """A text that changes each time the process's first thread gets a CPU, also to be stopped by a
    signal; empty if the kernel does not tell. Source: sched-stats.rst, "/proc/<pid>/schedstat".

    An idle daemon calls it every 45 s, with cold caches: a file object would take three times as
    long.
    """
    try:
        descriptor = os.open(f"/proc/{pid}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        text = os.read(descriptor, _MOST)
    except OSError:  # it has ended
        return b""
    finally:
        os.close(descriptor)
    return b"" if text.endswith(b" 0\n") else text  # it has run: a kernel without counts says 0
