"""A child process on the event loop that inherits this process's ignored and blocked signals.

Children of asyncio do not: libuv resets all their signals to the default action, so a scheduler's
signal would end an engine before it ignores signals.
"""

import asyncio
import errno
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

NO_MORE: Final = (
    "no further process or thread may be started: raise the limit (TasksMax= of a unit, pids.max "
    "of a control group, ulimit -u)"
)


class Child:
    """Owns the process, which leads a session of its own."""

    def __init__(
        self, command: Sequence[str], environ: Mapping[str, str], descriptors: Sequence[int]
    ) -> None:
        """Start it; `descriptors` stay open in it. Raises: OSError."""
        try:
            self._process = subprocess.Popen(
                command,
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                env=dict(environ),
                # A terminal's Ctrl-C reaches the whole process group: control drains first.
                start_new_session=True,
                restore_signals=False,
            )
        except BlockingIOError as exc:
            raise OSError(errno.EAGAIN, NO_MORE) from exc
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        try:
            threading.Thread(target=self._await, name="child", daemon=True).start()
        except RuntimeError as exc:
            self._process.kill()
            self._process.wait()
            raise OSError(errno.EAGAIN, NO_MORE) from exc

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Exit status, -N after signal N; None until `wait` would return."""
        return self._process.returncode

    async def wait(self) -> None:
        """Wait until the process has ended."""
        await self._over.wait()

    def kill(self) -> None:
        """End the process at once; no effect if it has ended."""
        self._process.kill()

    def _await(self) -> None:
        """Wait on a thread: kernels before Linux 5.3 have no pidfd. The event loop reaps the
        process, so that it can read the exit status at any time."""
        with suppress(ChildProcessError):  # `kill` found that it had ended, and has reaped it
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        with suppress(RuntimeError):  # the loop has closed
            self._loop.call_soon_threadsafe(self._ended)

    def _ended(self) -> None:
        self._process.wait()
        self._over.set()
