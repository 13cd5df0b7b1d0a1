"""How much an endpoint sends before it looks at what has arrived: about a millisecond's worth."""

from collections.abc import Iterator

import numpy as np
import pytest

from dlcp_lab.simulation.network import SimNetwork
from dlcpd.core.endpoint import Endpoint
from dlcpd.core.send_scheduler import LEAST_TURN, MOST_TURN
from dlcpd.core.wire.datagram import Transmit

SEGMENT = 1408
MEGABYTE = 1 << 20


def largest_turn(monkeypatch: pytest.MonkeyPatch, net: SimNetwork) -> int:
    """Bytes that an endpoint wanted to send at once, at most, in an operation of 16 MB."""
    turns, transmit = [0], Endpoint.transmit

    def watched(endpoint: Endpoint, now: float) -> Iterator[Transmit]:
        turns.append(0)
        for batch in transmit(endpoint, now):
            turns[-1] += batch.size
            yield batch

    monkeypatch.setattr(Endpoint, "transmit", watched)
    net.submit_all(1, [np.ones(4 * MEGABYTE, np.float32) for _ in range(2)])
    net.run(enough=lambda: net.ended(1))
    assert net.ended(1)
    return max(turns)


def network() -> SimNetwork:
    net = SimNetwork(2, segment_size=SEGMENT, chunk_segments=1440, grant=32 << 20)
    for endpoint in net.endpoints:
        for flow in endpoint.flows.values():
            flow.paths.space(0, 4).congestion.enabled = False
    return net


def test_a_quick_device_is_given_megabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    net = network()
    for _ in range(20):
        net.endpoints[0].scheduler.took(4 * MEGABYTE, 1e-3)
        net.endpoints[1].scheduler.took(4 * MEGABYTE, 1e-3)
    assert largest_turn(monkeypatch, net) > MEGABYTE // 2


def test_a_slow_device_is_given_what_it_takes_in_a_millisecond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = network()
    for endpoint in net.endpoints:
        for _ in range(40):
            endpoint.scheduler.took(MEGABYTE, 8e-3)
    assert largest_turn(monkeypatch, net) <= MEGABYTE // 8 + SEGMENT


def test_one_stop_of_the_machine_does_not_count_for_long() -> None:
    endpoint = network().endpoints[0]
    endpoint.scheduler.took(2 * MEGABYTE, 1.0)
    assert endpoint.scheduler.size > MOST_TURN // 2
    for _ in range(40):
        endpoint.scheduler.took(2 * MEGABYTE, 1.0)
    assert LEAST_TURN <= endpoint.scheduler.size < 2 * LEAST_TURN


def test_what_is_small_says_nothing() -> None:
    endpoint = network().endpoints[0]
    for _ in range(40):
        endpoint.scheduler.took(LEAST_TURN - 1, 1.0)
    assert endpoint.scheduler.size == MOST_TURN
