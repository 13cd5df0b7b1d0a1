"""Child processes that end with this one: stopped by process id, their output kept in logs."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dlcpd import starter

STOP_TIMEOUT: Final = 5.0  # seconds from the request to end to the kill
LAST_LINE: Final = 400  # characters of a log's last line in an error


@dataclass(frozen=True, slots=True)
class Child:
    """A running program."""

    name: str
    process: "subprocess.Popen[bytes]"
    log: Path

    def how_it_ended(self) -> str:
        """Exit status or signal, if it has ended, and the last line of the log."""
        status = self.process.poll()
        how = "still runs" if status is None else f"exited with status {status}"
        if status is not None and status < 0:
            how = f"was killed by {signal.Signals(-status).name}"
        lines = self.log.read_text(errors="replace").strip().splitlines()
        words = f"; its last line: {lines[-1][-LAST_LINE:]}" if lines else ", and printed nothing"
        return f"{self.name} (process {self.process.pid}) {how}{words}"

    def stop(self, request: signal.Signals) -> None:
        """Send `request`, and SIGKILL after STOP_TIMEOUT seconds."""
        if self.process.poll() is None:
            self.process.send_signal(request)
        try:
            self.process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@dataclass(frozen=True, slots=True)
class Place:
    """Where on this machine a program runs."""

    namespace: str = ""  # network namespace (needs root); "" = that of this process
    cpus: tuple[int, ...] = ()  # CPU affinity, with its children; () = all


ANYWHERE: Final = Place()


def start(
    module: str,
    *arguments: str,
    name: str,
    log: Path,
    environ: Mapping[str, str],
    place: Place = ANYWHERE,
    pass_fds: Sequence[int] = (),
) -> Child:
    """Start a module as a process."""
    inside = ("ip", "netns", "exec", place.namespace) if place.namespace else ()
    with_parent = starter.command("dlcp_lab.ranks.with_parent", str(os.getpid()))
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*inside, *with_parent, module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=starter.environment(environ),
            pass_fds=pass_fds,
            # Ctrl-C must reach only this process, which then ends its children in order.
            start_new_session=True,
        )
    if place.cpus and process.poll() is None:
        os.sched_setaffinity(process.pid, place.cpus)  # before it has children
    return Child(name, process, log)
