"""Counts what operations cost a host, by process: CPU time, context switches, system calls."""

import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from dlcpd.contract.errors import DaemonUnavailable
from dlcpd.inspection.report import query

TICK: Final = os.sysconf("SC_CLK_TCK")  # ticks of CPU time per second
ATTACH: Final = 0.5  # seconds that perf needs to attach
PERF_TIMEOUT: Final = 10.0  # seconds that perf has to write its count
_EVENT: Final = "raw_syscalls:sys_enter"


@dataclass(frozen=True, slots=True)
class Usage:
    """Totals of one process and its threads since it began. Seconds and counts."""

    user: float
    system: float
    waited: int  # voluntary context switches
    displaced: int  # involuntary context switches

    @classmethod
    def of(cls, process: int) -> Self:
        """From /proc (proc(5)). Raises: OSError."""
        folder = Path("/proc", str(process))
        after_name = (folder / "stat").read_text().rpartition(")")[2].split()
        waited = displaced = 0
        for thread in (folder / "task").iterdir():
            lines = (thread / "status").read_text().splitlines()
            found = dict(line.split(":", 1) for line in lines)
            waited += int(found["voluntary_ctxt_switches"])
            displaced += int(found["nonvoluntary_ctxt_switches"])
        return cls(int(after_name[11]) / TICK, int(after_name[12]) / TICK, waited, displaced)

    def since(self, before: "Usage") -> "Usage":
        """The increase since `before`."""
        return Usage(
            self.user - before.user,
            self.system - before.system,
            self.waited - before.waited,
            self.displaced - before.displaced,
        )


def processes(daemon: str) -> dict[str, int]:
    """Process ids by role: control process and engines of the daemon at `daemon`, this process.

    Raises: DaemonUnavailable without an engine.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.connect(daemon)
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    control = struct.unpack("3i", credentials)[0]
    children = Path(f"/proc/{control}/task/{control}/children").read_text().split()
    if not children:
        raise DaemonUnavailable(f"the daemon at {daemon} has no engine at the moment; see its log")
    first, *others = children
    more = {f"engine {number}": int(other) for number, other in enumerate(others, 1)}
    return {"engine": int(first), **more, "control": control, "trainer": os.getpid()}


def cpu_seconds(process: int) -> float:
    """CPU seconds of all threads of a process that run now: schedstat of proc(5), nanoseconds."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


class SystemCalls:
    """Counts the system calls of a process with perf(1), which needs root."""

    def __init__(self, process: int) -> None:
        self._output = tempfile.TemporaryFile("r+")  # noqa: SIM115  # kept; it has no name
        perf = shutil.which("perf")
        self._perf = (
            None
            if perf is None
            else subprocess.Popen(
                [
                    perf,
                    "stat",
                    "-x",
                    ",",
                    "--log-fd",
                    str(self._output.fileno()),
                    "-e",
                    _EVENT,
                    "-p",
                    str(process),
                ],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[self._output.fileno()],
            )
        )

    def stop(self) -> int | None:
        """Calls since the start; None if they could not be counted."""
        if self._perf is None:
            return None
        self._perf.send_signal(signal.SIGINT)
        try:
            self._perf.wait(PERF_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._perf.kill()
            self._perf.wait()
        self._output.seek(0)  # perf has moved the offset, which both share
        rows = [line.split(",") for line in self._output if _EVENT in line]
        self._output.close()
        return int(rows[0][0]) if rows and rows[0][0].isdigit() else None


class Meter:
    """Cost of the processes of this host between `start` and `stop`."""

    def __init__(self, daemon: str) -> None:
        self._daemon, self._processes = daemon, processes(daemon)

    def start(self) -> None:
        """Start to count; returns after ATTACH seconds."""
        self._calls = {role: SystemCalls(number) for role, number in self._processes.items()}
        time.sleep(ATTACH)
        self._effort = self._of_engine()
        self._before = {role: Usage.of(number) for role, number in self._processes.items()}

    def stop(self) -> dict[str, Any]:
        """`processes`: fields of `Usage` and `system_calls` by role; `effort`: engine's counts."""
        used = {
            role: Usage.of(number).since(self._before[role])
            for role, number in self._processes.items()
        }
        calls = {role: counting.stop() for role, counting in self._calls.items()}
        effort = {key: n - self._effort.get(key, 0) for key, n in self._of_engine().items()}
        return {
            "processes": {
                role: {
                    "user": usage.user,
                    "system": usage.system,
                    "waited": usage.waited,
                    "displaced": usage.displaced,
                    "system_calls": calls[role],
                }
                for role, usage in used.items()
            },
            "effort": {key: n for key, n in effort.items() if n},
        }

    def _of_engine(self) -> Mapping[str, int]:
        effort: dict[str, int] = query(self._daemon, 0)["engine"]["effort"]
        return effort
