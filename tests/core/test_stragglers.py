"""Who is waited for, since when, and how much is known of it."""

import numpy as np

from dlcp_lab.simulation.network import SimNetwork
from dlcpd.core.session.stragglers import LATE, MAX_STRAGGLERS, Straggler, stragglers


def waiting(world: int, *, paths: int = 1) -> SimNetwork:
    """Rank 0 has submitted two operations, half a second apart; nobody else did."""
    net = SimNetwork(world, paths=paths)
    begin = net.now
    for number in (1, 2):
        net.submit(0, number, np.zeros(1000, np.float32))
        net.run(until=begin + 0.5 * number - net.now)
        net.now = begin + 0.5 * number
    return net


def test_a_peer_is_named_with_the_operation_that_waits_for_longest() -> None:
    net = waiting(2)
    session = net.sessions[0]
    session.flows[1].address = "10.0.0.7:4040"
    [late] = stragglers(session, net.now)
    assert late[:4] == (1, "host1", "10.0.0.7:4040", 1.0)
    assert late.awaiting == "rank(s) 1 to submit operation 1"
    assert late.silent < 0.5, "its engine answers: it is its trainer that is late"
    assert late.paths_down == ()


def test_who_is_not_late_is_not_named() -> None:
    net = waiting(2)
    assert stragglers(net.sessions[0], net.now - 0.5 * LATE) == []
    assert stragglers(net.sessions[1], net.now) == []


def test_a_path_that_is_down_is_named() -> None:
    net = waiting(2, paths=2)
    net.sessions[0].flows[1].paths.tx[1].up = False
    assert stragglers(net.sessions[0], net.now)[0].paths_down == (1,)


def test_only_some_of_many_are_named() -> None:
    net = waiting(MAX_STRAGGLERS + 3)
    found: list[Straggler] = stragglers(net.sessions[0], net.now)
    assert [late.rank for late in found] == list(range(1, MAX_STRAGGLERS + 1))


def test_who_has_come_is_waited_for_no_more() -> None:
    net = waiting(3)
    net.submit(1, 1, np.zeros(1000, np.float32))
    net.run(until=0.1)
    first = net.open(0, 1)
    assert first.awaited()[0] == {2}
