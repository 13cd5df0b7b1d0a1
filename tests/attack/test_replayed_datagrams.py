"""Datagrams of a rank that is dead, sent once more by somebody who saw them."""

from collections.abc import Callable
from typing import Final

import numpy as np
import pytest

from dlcp_lab.simulation.network import SimNetwork

EVERY: Final = 0.05  # seconds: 20 times a second, all that was ever seen
LATEST: Final = 1.5  # seconds of silence


@pytest.mark.check(5, "a peer is dead, and all it ever sent is repeated 20 times a second")
def test_it_is_lost_all_the_same(measured: Callable[[str], None]) -> None:
    net = SimNetwork(2, recorded=[])
    for number in (1, 2, 3):
        for rank in range(2):
            net.submit(rank, number, np.ones(5000, np.float32))
        net.run(0.4)
    seen = [carried for carried in net.recorded or [] if carried.source == 1]
    net.recorded = None
    net.cut.add(1)
    died_at = net.now
    net.submit(0, 4, np.ones(5000, np.float32))
    while not net.failed(0) and net.now < died_at + 10.0:
        for carried in seen:
            net.inject(0, carried.data, carried.path)
        net.run(EVERY)
    assert net.failed(0)[4].code == "peer_lost"
    assert net.now - died_at <= LATEST
    measured(f"named after {net.now - died_at:.2f} s")
