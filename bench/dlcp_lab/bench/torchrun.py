"""Runs a module on two ranks of this machine under torchrun and returns its output."""

import os
import signal
import subprocess
from typing import Final

from dlcp_lab.emulation.patience import patience
from dlcpd import starter
from dlcpd.contract.errors import DlcpError

LIMIT: Final = 100.0  # seconds for one run on an idle machine


class RunFailed(DlcpError, RuntimeError):
    """A run of a module failed, or took too long."""

    code = "run_failed"


def run(module: str, *arguments: str, limit: float = LIMIT, **variables: str) -> list[str]:
    """The lines on stdout of `module`, at least one; `variables` are added to the environment.

    `limit`: seconds on an idle machine; a busy one has more. Raises: RunFailed, with the end of
    stderr if the run failed.
    """
    limit = patience(limit)
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
        raise RunFailed(f"{said} did not end within {limit:g} s") from None
    finally:
        if process.poll() is None:  # with its ranks
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode:
        raise RunFailed(f"{said} ended with status {process.returncode}: {err[-2000:]}")
    if not out:
        raise RunFailed(f"{said} printed no result")
    return out.splitlines()
