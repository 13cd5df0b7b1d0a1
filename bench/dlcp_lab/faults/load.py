"""A busy machine: processes that compute all the time."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

# Ends with the process that started it.
_COMPUTE = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    sum(range(100_000))\n"


@contextmanager
def load(per_core: int) -> Iterator[None]:
    """`per_core` processes for each CPU that this process may use compute until the context ends.

    Raises: OSError where there are no processes left.
    """
    with ExitStack() as stack:
        for _ in range(per_core * len(os.sched_getaffinity(0))):
            command = [sys.executable, "-S", "-c", _COMPUTE, str(os.getpid())]
            process = stack.enter_context(subprocess.Popen(command))
            stack.callback(process.kill)  # before the context of Popen waits
        yield
