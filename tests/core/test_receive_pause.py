"""Data of long operations may wait in the sockets for a short time, where the link is slow."""

import numpy as np
import pytest

from dlcp_lab.simulation.network import SimNetwork
from dlcpd.core.paths.incast import LEAST_PAUSE, PAUSE, WORTH, ArrivalRate
from dlcpd.core.session.agenda import Agenda
from dlcpd.core.session.rendezvous import SHORT

SLOW = 6_250_000.0  # bytes per second, 50 Mb/s
TICK = 1e-3  # seconds
WORLD = 3


def pause(rate: float) -> float:
    """Seconds that data may wait right after data came."""
    arriving, now = ArrivalRate(), 10.0
    for _ in range(100):
        now += TICK
        arriving.on_bytes(int(rate * TICK), now, now)
    left = arriving.pause(now)
    assert arriving.pause(now + left / 2) == pytest.approx(left / 2)
    assert arriving.pause(now + left) == 0.0, "a datagram after a silence does not wait"
    return left


def test_data_wait_until_a_few_datagrams_have_come() -> None:
    assert pause(SLOW) == pytest.approx(PAUSE)
    assert pause(2 * WORTH / PAUSE) == pytest.approx(PAUSE / 2, rel=0.01)


def test_nothing_waits_where_several_datagrams_come_per_wake_up_anyway() -> None:
    assert pause(WORTH / LEAST_PAUSE * 0.98) > 0.0
    assert pause(WORTH / LEAST_PAUSE * 1.02) == 0.0


def test_nothing_waits_before_the_rate_is_known() -> None:
    assert ArrivalRate().pause(0.0) == 0.0


def agendas(net: SimNetwork) -> list[Agenda]:
    return [next(iter(endpoint.flows.values())).agenda for endpoint in net.endpoints]


def may_pause(net: SimNetwork) -> list[bool]:
    """By host, after data came at a low rate."""
    found = []
    for endpoint in net.endpoints:
        arriving = endpoint._grants.arriving  # noqa: SLF001  # what data would feed
        for tick in range(100):
            arriving.on_bytes(int(SLOW * TICK), net.now + tick * TICK, net.now + tick * TICK)
        found.append(endpoint.pause(arriving.last) > 0.0)
    return found


def submit(net: SimNetwork, number: int, size: int) -> None:
    """An all-reduce in which peers send this rank 4/3 of `size` bytes."""
    net.submit_all(number, [np.ones(size // 4, np.float32) for _ in range(WORLD)])


@pytest.mark.parametrize("end", ["done", "closed"])
def test_only_long_operations_wait_and_until_a_small_one_is_submitted(end: str) -> None:
    net = SimNetwork(WORLD)
    made = agendas(net)
    assert may_pause(net) == [False] * WORLD, "nothing is to come"
    submit(net, 1, SHORT)
    assert may_pause(net) == [True] * WORLD
    submit(net, 2, SHORT // 4)
    assert may_pause(net) == [False] * WORLD
    if end == "done":
        net.run()
    else:
        for endpoint in net.endpoints:
            endpoint.close_session(next(iter(endpoint.sessions)))
    assert not any(each.short or each.expecting for each in made)
