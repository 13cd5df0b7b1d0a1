"""Load on a machine: processes that compute all the time."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from dlcpd import starter


@contextmanager
def load(per_core: int) -> Iterator[None]:
    """`per_core` processes for each CPU that this process may use compute until the context ends.

    Raises: OSError if a process cannot be started.
    """
    with ExitStack() as stack:
        for _ in range(per_core * len(os.sched_getaffinity(0))):
            command = starter.command("dlcp_lab.faults.load", str(os.getpid()))
            started = subprocess.Popen(command, env=starter.environment())
            process = stack.enter_context(started)
            stack.callback(process.kill)  # before the context of Popen waits
        yield


def _compute() -> None:
    """Compute until the parent process has ended."""
    while os.getppid() == int(sys.argv[1]):
        sum(range(100_000))


if __name__ == "__main__":
    _compute()
