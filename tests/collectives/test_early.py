"""Small contributions travel with READY: a peer in step takes them, a late one has kept them."""

import pytest

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcp_lab.simulation.reference import copies, draw, rank_ordered
from dlcpd.contract.errors import ArenaFull
from dlcpd.core.session.outbox import ANSWER_DELAY
from dlcpd.core.wire.header import Header, Kind

DELAY = 200e-6  # seconds


def warm(world: int = 2, jitter: float = 0.0, *, one_shot: bool = False) -> SimNetwork:
    """After one operation every rank knows the others' windows."""
    net = SimNetwork(world, SimLink(delay=DELAY, jitter=jitter), recorded=[], one_shot=one_shot)
    net.submit_all(1, draw("float32", world, 100, 1))
    net.run()
    assert net.recorded
    net.recorded.clear()
    return net


def contributions(net: SimNetwork, source: int | None = None) -> int:
    """Datagrams of them, of one rank or of all."""
    found = [
        c.source for c in net.recorded or () if net.is_contribution(c.source, c.target, c.data)
    ]
    return len(found) if source is None else found.count(source)


def operations(net: SimNetwork, kind: Kind) -> set[int]:
    """Those of the datagrams of one kind."""
    headers = [Header.unpack_untrusted(c.data) for c in net.recorded or ()]
    return {header.operation for header in headers if header.kind is kind}


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
    net = SimNetwork(2, SimLink(delay=DELAY), recorded=[])
    net.submit(0, 1, draw("float32", 2, 100, 1)[0])
    net.run(until=0.1)
    assert contributions(net) == 0


@pytest.mark.parametrize("one_shot", [False, True])
@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize(("room", "trips"), [(True, 2), (False, 6)])
def test_a_rank_that_comes_late(world: int, one_shot: bool, room: bool, trips: int) -> None:
    """It has kept what came early; what it had no room for is sent again at once."""
    net = warm(world, one_shot=one_shot)
    parts = draw("float32", world, 100, 2)
    expected, held = rank_ordered(parts, "float32", "sum"), copies(parts)
    for flow in net.sessions[0].flows.values():
        flow.arrivals.early.limit = flow.arrivals.early.limit if room else 0
    for rank in range(1, world):
        net.submit(rank, 2, held[rank])
    net.run(until=0.05)
    before, begin = contributions(net), net.now
    net.submit(0, 2, held[0])
    net.run(until=(trips + 0.2) * DELAY)  # no timer is waited for
    assert all((tensor == expected).all() for tensor in held)
    assert net.now - begin <= (trips + 0.2) * DELAY
    net.run()
    assert net.ended(2)
    again = contributions(net) - before - contributions(net, source=0)
    assert bool(again) is not room


def test_what_is_kept_is_dropped_with_the_operation() -> None:
    net = warm()
    net.submit(1, 2, draw("float32", 2, 100, 2)[1])
    net.run(until=0.05)
    (early,) = [flow.arrivals.early for flow in net.sessions[0].flows.values()]
    assert early.size
    net.sessions[0].refuse(2, 0, (0, 1), ArenaFull("no"))
    assert not early.size


def test_the_next_ready_says_that_the_last_operation_is_done() -> None:
    """No COMPLETE is needed between operations that follow each other."""
    net = SimNetwork(2, SimLink(delay=DELAY), recorded=[])
    for number in (1, 2, 3):
        net.submit_all(number, draw("float32", 2, 100, number), in_place=False)
        net.run(until=4 * DELAY)
    assert [net.released(rank) for rank in range(2)] == [{1, 2}, {1, 2}]
    net.run()
    assert operations(net, Kind.COMPLETE) == {3}
    assert [net.released(rank) for rank in range(2)] == [{1, 2, 3}, {1, 2, 3}]


def test_answers_to_every_operation_come_before_they_are_asked_for() -> None:
    net = SimNetwork(2, SimLink(delay=DELAY), recorded=[])
    for number in (1, 2, 3):
        net.submit_all(number, draw("float32", 2, 100, number), digest_every=0)
        net.run()
        net.now += 1.0
    assert operations(net, Kind.COMPLETE) == {1, 2, 3}
    assert not operations(net, Kind.END)


def test_an_answer_that_has_waited_goes_along_with_the_next_ready() -> None:
    net = warm()
    begin = net.now
    net.submit_all(2, draw("float32", 2, 100, 2), in_place=False)
    net.run(until=0.9 * ANSWER_DELAY)
    assert not any(c.data[1] == Kind.CREDIT for c in net.recorded or ())
    net.now = begin + 0.9 * ANSWER_DELAY
    net.submit_all(3, draw("float32", 2, 100, 3), in_place=False, digest_every=0)
    net.run(until=0.0)
    assert any(c.data[1] == Kind.CREDIT for c in net.recorded or ())


def test_a_ready_that_came_early_is_told_once() -> None:
    net = warm()
    net.submit(1, 2, draw("float32", 2, 100, 2)[1])
    net.run(until=0.5)
    assert [c.data[1] for c in net.recorded or ()].count(Kind.READY) == 1


def test_what_came_before_the_ready_it_travelled_with_is_retransmitted() -> None:
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
    assert contributions(net) == 0
