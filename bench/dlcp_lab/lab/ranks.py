"""Runs one program on every host, with the variables of torchrun in its environment.

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (of rank 0's host), and also HOST_ADDRESS (its own
address) and GLOO_SOCKET_IFNAME.
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
TIMED_OUT: Final = 124  # exit status of timeout(1)


def rank_environment(net: Fabric, rank: int) -> dict[str, str]:
    """The environment of one rank: that of this process, and the rank's place in the job."""
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

    The first failure or `timeout` (seconds) ends the wait and all other ranks: a rank that waits
    for a dead one must not block the fabric.
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
    print("lab run: some ranks did not end in time", file=sys.stderr)
    return TIMED_OUT
