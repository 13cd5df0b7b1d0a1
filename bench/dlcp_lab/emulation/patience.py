"""How long to wait for processes of this machine, by its load."""

import os
from typing import Final

from dlcpd.daemon.config.tables import NetworkTable

MOST: Final = 20.0  # factor; a machine on which everything takes longer measures nothing
PEER_TIMEOUT: Final = NetworkTable().peer_timeout  # seconds on an idle machine: the default
HIGHEST: Final[float] = NetworkTable.__dataclass_fields__["peer_timeout"].metadata["high"]


def patience(seconds: float) -> float:
    """`seconds` on an idle machine; longer by the number of runnable processes per CPU.

    With N runnable processes per CPU a process has an N-th of a CPU, and takes N times as long to
    start, to import torch or to answer. The number is the mean of the last minute, at most MOST.
    """
    cpus = len(os.sched_getaffinity(0))
    return seconds * min(max(1.0, runnable() / cpus), MOST)


def peer_timeout(seconds: float = PEER_TIMEOUT) -> float:
    """[network] peer_timeout of daemons on this machine, seconds; `seconds` on an idle one.

    All hosts of an emulated fabric share this machine's CPUs. A daemon that waits for a CPU is as
    silent as a dead one, so a limit for idle machines would end jobs whose hosts are only late.
    """
    return min(patience(seconds), HIGHEST)


def runnable() -> float:
    """Runnable processes, mean of the last minute; 0 where the system does not say."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return 0.0
