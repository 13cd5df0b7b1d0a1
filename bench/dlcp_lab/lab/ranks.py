"""Runs one or more ranks on every host, with the variables of torchrun in their environment.

RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT (of rank 0's host), and
also HOST_ADDRESS (its own address) and GLOO_SOCKET_IFNAME.
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


def rank_environment(net: Fabric, rank: int, each: int) -> dict[str, str]:
    """The environment of one rank, of `each` on a host: that of this process, and the rank's place
    in the job. Neighbouring ranks share a host."""
    host, local = divmod(rank, each)
    place = {
        "RANK": str(rank),
        "LOCAL_RANK": str(local),
        "WORLD_SIZE": str(net.hosts * each),
        "LOCAL_WORLD_SIZE": str(each),
        "MASTER_ADDR": net.address(0),
        "MASTER_PORT": str(MASTER_PORT),
        "HOST_ADDRESS": net.address(host),
        "GLOO_SOCKET_IFNAME": "eth0",
    }
    return os.environ | place


def run_ranks(net: Fabric, argv: Sequence[str], *, timeout: float, each: int = 1) -> int:
    """Run `each` ranks of `argv` on every host and wait; the first exit status that is not 0, or 0.

    The first failure or `timeout` (seconds) ends the wait and all other ranks: a rank that waits
    for a dead one must not block the fabric.
    """
    return _run(net, range(net.hosts), argv, timeout, each)


def run_on(net: Fabric, host: int, argv: Sequence[str], *, timeout: float, each: int = 1) -> int:
    """Run the ranks of one host only, with their place in the job; as `run_ranks`."""
    return _run(net, [host], argv, timeout, each)


def _run(net: Fabric, hosts: Iterable[int], argv: Sequence[str], timeout: float, each: int) -> int:
    ranks = [
        net.run(host, argv, env=rank_environment(net, host * each + local, each))
        for host in hosts
        for local in range(each)
    ]
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
