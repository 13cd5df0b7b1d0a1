"""Runs a module on two ranks of this machine under torchrun and returns its output."""

import os
import signal
import subprocess
from typing import Final

from dlcpd import starter

LIMIT: Final = 100.0  # seconds for one run


def run(module: str, *arguments: str, limit: float = LIMIT, **variables: str) -> list[str]:
    """The lines on stdout of `module`; `variables` are added to the environment.

    Raises: RuntimeError, with the end of stderr if the run failed; after `limit` seconds.
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
