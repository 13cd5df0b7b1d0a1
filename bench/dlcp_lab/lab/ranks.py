"""One program on every host, each with its place in the job, as torchrun would give it.

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (rank 0's host), and beside these HOST_ADDRESS
(its own) and GLOO_SOCKET_IFNAME.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

from dlcp_lab.emulation.fabric import Fabric

MASTER_PORT: Final = 29500  # torchrun's; each host has its own port space
TIMED_OUT: Final = 124  # exit status, as timeout(1) says it


def rank_environment(net: Fabric, rank: int) -> dict[str, str]:
    """The environment of one rank: this process's own, and its place in the job."""
    place = {
        "RANK": str(rank),
        "WORLD_SIZE": str(net.hosts),
        "MASTER_ADDR": net.address(0),
        "MASTER_PORT": str(MASTER_PORT),
        "HOST_ADDRESS": net.address(rank),
        "GLOO_SOCKET_IFNAME": "eth0",
    }
    return os.environ | place


def run_ranks(net: Fabric, argv: Sequence[str], *, timeout: float) -> int:
    """Run `argv` on every host and wait; the first exit status that is not 0, or 0.

    The first failure or `timeout` (seconds) ends the wait: a rank that waits for a
    dead one must not keep the fabric. What still runs is ended then.
    """
    return _run(net, range(net.hosts), argv, timeout)


def run_on(net: Fabric, host: int, argv: Sequence[str], *, timeout: float) -> int:
    """Run `argv` on one host, with that rank's place in the job; its exit status."""
    return _run(net, [host], argv, timeout)


def _run(net: Fabric, hosts: Iterable[int], argv: Sequence[str], timeout: float) -> int:
    ranks = [net.run(host, argv, env=rank_environment(net, host)) for host in hosts]
    try:
        return _first_status(ranks, time.monotonic() + timeout)
    finally:
        net.end(ranks)


def _first_status(ranks: Sequence[subprocess.Popen[Any]], deadline: float) -> int:
    while time.monotonic() < deadline:
        codes = [child.poll() for child in ranks]
        if any(codes) or None not in codes:
            return next((code for code in codes if code), 0)
        with suppress(subprocess.TimeoutExpired):
            ranks[codes.index(None)].wait(0.1)
    print("ranks: not all have finished in time", file=sys.stderr)
    return TIMED_OUT
