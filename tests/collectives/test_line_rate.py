"""A link in both directions at once: exact all-reduces take what their payload needs, and little
more. Virtual time; the link carries datagrams, with their framing, and queues 256 KB of them."""

from functools import partial

import numpy as np
import pytest

from dlcp_lab.simulation.network import FRAMING, SimLink, SimNetwork

SEGMENT, HEADERS = 1408, 32 + FRAMING  # bytes


def excess(mbit: float, megabytes: float, operations: int) -> list[float]:
    """Time of each operation, in times of what its payload needs on the wire."""
    rate = mbit * 1e6 / 8 / (SEGMENT + HEADERS)  # datagrams per second
    net = SimNetwork(
        2,
        SimLink(delay=100e-6, rate=rate, queue=(256 << 10) // (SEGMENT + HEADERS)),
        segment_size=SEGMENT,
        chunk_segments=1440,
        grant=32 << 20,
    )
    elements, times = int(megabytes * 1e6 / 4), []
    for operation in range(1, operations + 1):
        begun = net.now
        net.submit_all(operation, [np.ones(elements, np.float32) for _ in range(2)])
        net.run(enough=partial(net.ended, operation))
        times.append((net.now - begun) * rate * SEGMENT / (megabytes * 1e6))
        net.run(until=0.05)
    return times


@pytest.mark.parametrize(("mbit", "megabytes"), [(50, 1), (200, 2), (1000, 4)])
def test_operations_keep_the_link_busy(mbit: float, megabytes: float) -> None:
    first, *others = excess(mbit, megabytes, 3)
    assert first <= 1.15
    assert max(others) <= 1.06
