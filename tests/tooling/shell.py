"""A shell that stays, as that of somebody who types what a page says, line by line."""

import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

PATIENCE: Final = 240.0  # seconds until a line has failed; never a measure of anything
OURS: Final = ("DLCPD_", "PYTHON")  # what tests set for themselves, and a reader has not


class Shell:
    """Variables and processes in the background last from one line to the next.

    Use as a context manager: with it end all processes that were started in it.
    """

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder, self._outputs = folder, 0
        self._ended, told = os.pipe()  # exit codes of lines
        environ = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            pass_fds=[told],
            start_new_session=True,
            env=environ | {"PATH": f"{programs}:{environ['PATH']}", "OMP_NUM_THREADS": "1"},
        )
        os.close(told)
        self._told = told

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        os.close(self._ended)

    def _end(self) -> None:
        """End whatever runs in it."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._bash.pid, number)
            except ProcessLookupError:
                break
            deadline = time.monotonic() + 10
            while self._others() and time.monotonic() < deadline:
                self._bash.poll()
                time.sleep(0.05)
        assert self._bash.stdin
        self._bash.stdin.close()
        self._bash.wait()

    def run(self, line: str, code: int = 0) -> str:
        """What the line printed, in its first moments if it is in the background.

        Raises: AssertionError where it ended with another code than `code`, or not at all.
        """
        assert self._bash.poll() is None, f"{line}: not typed, for an earlier line did not end"
        self._outputs += 1
        output = self.folder / f".{self._outputs}.out"
        typed = f"{{ {line}\n}} >{output} 2>&1 </dev/null; echo $? >&{self._told}\n"
        assert self._bash.stdin
        self._bash.stdin.write(typed.encode())
        self._bash.stdin.flush()
        ready, _, _ = select.select([self._ended], [], [], PATIENCE)
        printed = output.read_text() if output.exists() else ""
        if not ready:
            self._end()  # what stands below on the page cannot be typed any more
        assert ready, f"{line}: has not ended after {PATIENCE:g} s\n{printed}"
        ended = os.read(self._ended, 16).decode().strip()
        assert ended == str(code), f"{line}: exit code {ended}\n{printed}"
        return printed

    def variables(self, values: Mapping[str, str]) -> None:
        """Export them."""
        for name, value in values.items():
            self.run(f"export {name}={value!r}")

    def until(self, line: str) -> str:
        """Type `line` again and again until it ends well."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return self.run(line)
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    def _others(self) -> bool:
        """Whether a process of this shell is left."""
        try:
            os.killpg(self._bash.pid, 0)
        except ProcessLookupError:
            return False
        return True
