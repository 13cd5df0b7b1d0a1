"""Small contributions travel with READY: taken by a peer in step, sent again to a late one."""

import pytest

from dlcpd.core.wire import Kind
from tests.sim.network import Link, SimNetwork
from tests.sim.reference import copies, draw, rank_ordered

DELAY = 200e-6  # seconds


def warm(world: int = 2, jitter: float = 0.0) -> SimNetwork:
    """After one operation every rank knows the others' windows."""
    net = SimNetwork(world, Link(delay=DELAY, jitter=jitter), recorded=[])
    net.submit_all(1, draw("float32", world, 100, 1))
    net.run()
    assert net.recorded
    net.recorded.clear()
    return net


def pushes(net: SimNetwork) -> int:
    return sum(c.data[1] == Kind.PUSH for c in net.recorded or ())


def test_in_step_a_small_operation_takes_one_round_trip() -> None:
    net = warm()
    parts = draw("float32", 2, 100, 2)
    expected = rank_ordered(parts, "float32", "sum")
    begin = net.now
    net.submit_all(2, parts)
    net.run(until=2.2 * DELAY)  # contribution there, result back
    assert all((part == expected).all() for part in parts)
    assert net.now - begin <= 2.2 * DELAY
    net.run()
    assert net.counted("unready") == net.counted("early") == 0


def test_the_first_operation_of_all_waits_for_the_peers_window() -> None:
    net = SimNetwork(2, Link(delay=DELAY), recorded=[])
    net.submit(0, 1, draw("float32", 2, 100, 1)[0])
    net.run(until=0.1)
    assert pushes(net) == 0


@pytest.mark.parametrize("world", [2, 4])
def test_a_rank_that_comes_late_is_sent_it_again_at_once(world: int) -> None:
    net = warm(world)
    parts = draw("float32", world, 100, 2)
    expected, held = rank_ordered(parts, "float32", "sum"), copies(parts)
    for rank in range(1, world):
        net.submit(rank, 2, held[rank])
    net.run(until=0.05)
    net.now += 0.05
    assert net.counted("early")
    begin = net.now
    net.submit(0, 2, held[0])
    net.run(until=6 * DELAY)  # READY, contributions again, result: no timer is waited for
    assert all((tensor == expected).all() for tensor in held)
    assert net.now - begin <= 6 * DELAY
    net.run()
    assert all(2 in net.done(rank) for rank in range(world))


def test_what_came_before_the_ready_it_travelled_with_is_repaired() -> None:
    """The network turns them around: what nobody has agreed on yet does not count."""
    for seed in range(5):
        net = warm(jitter=5 * DELAY)
        net.seed = seed
        parts = draw("float32", 2, 1500, 2)
        expected = rank_ordered(parts, "float32", "sum")
        net.submit_all(2, parts)
        net.run()
        assert all((part == expected).all() for part in parts)


def test_a_large_contribution_waits_for_the_peer() -> None:
    net = warm()
    net.submit(0, 2, draw("float32", 2, 50_000, 2)[0])
    net.run(until=0.05)
    assert pushes(net) == 0
