"""Many hosts send to one at once: its port's buffer does not overflow, and its link stays busy.

Virtual time: ports of 100 Mb/s with 128 KiB, and 64 KiB from each host to each other one.
"""

from functools import partial
from statistics import median

import numpy as np
import pytest

from dlcp_lab.simulation.network import FRAMING, SimLink, SimNetwork

HEADERS = 32 + FRAMING  # bytes
RATE = 100e6 / 8  # bytes per second
BUFFER = 128 << 10  # bytes
PART = 64 << 10  # bytes


def fabric(hosts: int, segment_size: int = 1408, grant: int = 32 << 20) -> SimNetwork:
    packet = segment_size + HEADERS
    link = SimLink(delay=100e-6, rate=RATE / packet, queue=BUFFER // packet)
    return SimNetwork(hosts, link, segment_size=segment_size, chunk_segments=1440, grant=grant)


def reduce(net: SimNetwork, operation: int) -> float:
    """An all-reduce; the seconds that it took."""
    begun, elements = net.now, PART // 4 * net.world_size
    net.submit_all(operation, [np.ones(elements, np.float32) for _ in range(net.world_size)])
    net.run(until=20, enough=partial(net.ended, operation))
    assert net.ended(operation)
    return net.now - begun


@pytest.mark.parametrize("senders", [4, pytest.param(8, marks=pytest.mark.heavy)])
def test_many_senders_keep_the_link_busy_and_its_buffer_whole(senders: int) -> None:
    net = fabric(senders + 1)
    reduce(net, 1)  # measures what comes in
    dropped, carried = net.dropped, net.carried
    limit = 2 * senders * PART * (1408 + HEADERS) / 1408 / RATE
    times = [reduce(net, operation) for operation in range(2, 7)]
    assert median(times) < 1.1 * limit
    assert max(times) < 1.3 * limit, "a loss at the end of an operation is repaired later"
    assert net.dropped - dropped < 0.003 * (net.carried - carried)


@pytest.mark.heavy
def test_a_share_below_a_datagram_still_ends() -> None:
    """On a jumbo network, where many peers share small receive buffers."""
    net = fabric(17, segment_size=8896, grant=16 * 8000)
    for operation in (1, 2):
        assert reduce(net, operation) < 2


def test_what_comes_in_small_parts_is_expected_until_it_is_complete() -> None:
    """So what each may send is right from the first datagram on."""
    net = fabric(3)
    net.submit_all(1, [np.ones(1 << 16, np.float32) for _ in range(3)])
    flows = list(net.sessions[0].flows.values())
    assert all(flow.arrivals.expected and not len(flow.arrivals) for flow in flows)
    net.run(enough=partial(net.ended, 1))
    assert not any(flow.arrivals.expected for flow in flows)


def test_nothing_is_expected_of_an_operation_that_failed() -> None:
    net = fabric(3)
    net.submit_all(1, [np.ones(1 << 16, np.float32) for _ in range(3)], deadline=0.001)
    net.run(until=5)
    assert net.failed(0)
    assert not any(flow.arrivals.expected for flow in net.sessions[0].flows.values())
