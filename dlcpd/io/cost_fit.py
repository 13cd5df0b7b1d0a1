"""CPU costs of an engine from its counters."""

from collections.abc import Sequence
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np

from dlcpd.schedules.network import Costs

LEAST_WINDOWS: Final = 3  # as many as there are costs
_NS: Final = 1e9


class WorkWindow(NamedTuple):
    """The increase of an engine's counters in some time, and its CPU time then, in seconds."""

    cpu: float
    transfers: int
    datagrams: int
    wake_ups: int


def fitted(windows: Sequence[WorkWindow], latency_ns: int) -> Costs:
    """Costs that explain the CPU time of the windows best (least squares), none below 0.

    Windows should differ in what they do: of two counters that always grow in proportion, the sum
    of their costs is right, and its division arbitrary. Raises: ValueError for fewer than
    LEAST_WINDOWS.
    """
    if len(windows) < LEAST_WINDOWS:
        raise ValueError(f"{len(windows)} windows: at least {LEAST_WINDOWS}")
    counts = np.array([window[1:] for window in windows], dtype=float)
    cpu = np.array([window.cpu for window in windows])
    best, costs = float(cpu @ cpu), np.zeros(counts.shape[1])
    # With three costs, to try all sets of positive ones takes seven small systems.
    for number in range(1, counts.shape[1] + 1):
        for chosen in map(list, combinations(range(counts.shape[1]), number)):
            found = np.linalg.lstsq(counts[:, chosen], cpu, rcond=None)[0]
            error = float(((counts[:, chosen] @ found - cpu) ** 2).sum())
            if found.min() >= 0 and error < best:
                best, costs = error, np.zeros(counts.shape[1])
                costs[chosen] = found
    transfer, datagram, wake_up = (round(float(cost) * _NS) for cost in costs)
    return Costs(transfer, datagram, wake_up, latency_ns)
