"""CPU time and memory of a process, for reports."""

import os
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")  # of CPU time per second
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")  # bytes
# Fields of /proc/PID/stat after the name, which may have spaces: proc_pid_stat(5).
_USER, _SYSTEM, _RESIDENT = 11, 12, 21


def usage(pid: int) -> tuple[float, int] | tuple[None, None]:
    """Seconds of CPU time, and bytes of resident memory; None if the process has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None, None
    fields = text.rpartition(")")[2].split()
    ticks = int(fields[_USER]) + int(fields[_SYSTEM])
    return ticks / _TICKS, int(fields[_RESIDENT]) * _PAGE
