"""Two ranks of this machine under torchrun, and what rank 0 printed."""

import os
import signal
import subprocess
from typing import Final

from dlcpd import starter

LIMIT: Final = 100.0  # seconds for one run


def run(module: str, *arguments: str, limit: float = LIMIT, **variables: str) -> list[str]:
    """The lines on stdout of `module`, run with more variables of the environment.

    Raises: RuntimeError with the last words of a run that failed, or had not ended in time.
    """
    command = starter.command(
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "--module",
        module,
        *arguments,
    )
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=starter.environment({**os.environ, **variables}),
    )
    said = " ".join(arguments)
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{said}: not done after {limit:g} s") from None
    finally:
        if process.poll() is None:  # with its ranks
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode:
        raise RuntimeError(f"{said}: exit status {process.returncode}: {err[-2000:]}")
    return out.splitlines()
