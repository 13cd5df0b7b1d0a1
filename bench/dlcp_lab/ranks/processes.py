"""Child processes that end with this one: stopped by their id, their output kept for errors."""

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
        """How it ended, and its last line."""
        status = self.process.poll()
        how = f"exited with status {status}"
        if status is not None and status < 0:
            how = f"was killed by {signal.Signals(-status).name}"
        lines = self.log.read_text(errors="replace").strip().splitlines()
        words = f"; its last line: {lines[-1][-LAST_LINE:]}" if lines else ", without a word"
        return f"{self.name} (process {self.process.pid}) {how}{words}"

    def stop(self, request: signal.Signals) -> None:
        """Ask it to end, then make sure."""
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

    namespace: str = ""  # network namespace (needs root); "" = ours
    cpus: tuple[int, ...] = ()  # it and its children keep to them; () = all


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
    """Run a module."""
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
            # A terminal's Ctrl-C is for this process alone, which then ends the others in order.
            start_new_session=True,
        )
    if place.cpus and process.poll() is None:
        os.sched_setaffinity(process.pid, place.cpus)  # at once: it has no children yet
    return Child(name, process, log)
