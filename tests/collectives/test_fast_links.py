"""Ports of 100 Gb/s with 1 MB: no queue overflows, no burst waits for a timer.

Virtual time. A millisecond of such a link is 12 MB, so a rule in milliseconds fails here.
"""

from functools import partial

import numpy as np
import pytest

from dlcp_lab.simulation.network import FRAMING, SimLink, SimNetwork
from dlcpd.schedules.builders.reduce import direct

SEGMENT, HEADERS = 1408, 32 + FRAMING  # bytes
RATE = 100e9 / 8  # bytes per second
PACKET = SEGMENT + HEADERS  # bytes
BUFFER = 1 << 20  # bytes


def fabric(hosts: int) -> SimNetwork:
    link = SimLink(delay=5e-6, rate=RATE / PACKET, queue=BUFFER // PACKET)
    return SimNetwork(hosts, link, segment_size=SEGMENT, chunk_segments=1440, grant=256 << 20)


def measured(net: SimNetwork) -> SimNetwork:
    """Its hosts have taken in data at the rate of their links, as after 10 ms of a training."""
    for endpoint in net.endpoints:
        for number in range(12):
            now = net.now - 0.012 + 0.001 * number
            rate = endpoint._grants.arriving  # noqa: SLF001  # 10 ms of 100 Gb/s take a minute
            rate.on_bytes(int(RATE * 0.001), now, now)
    return net


def test_sixteen_senders_to_one_do_not_overflow_its_port() -> None:
    net, size = measured(fabric(17)), 256 << 10
    for operation in (1, 2, 3):
        for rank in range(17):
            program = direct(rank, 17, size, 0, size)
            data = np.ones(size // 4, np.float32)
            net.submit(rank, operation, data, program=program, digest_every=1 << 20)
        net.run(until=1, enough=partial(net.ended, operation))
        assert net.ended(operation)
    assert not net.dropped


@pytest.mark.parametrize("known", [False, True])
def test_an_all_reduce_takes_the_time_of_its_bytes(known: bool) -> None:
    net, size = fabric(4), 1 << 20
    limit = 2 * 3 / 4 * size * PACKET / SEGMENT / RATE
    for operation in (1, 2, 3):
        begun = net.now
        net.submit_all(operation, [np.ones(size // 4, np.float32) for _ in range(4)])
        net.run(until=1, enough=partial(net.ended, operation))
        assert limit >= 0.7 * (net.now - begun)
        if known:
            measured(net)
    assert not net.dropped
