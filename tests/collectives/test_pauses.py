"""A host that stands still for a while and comes back: nothing is lost but time (P6)."""

import numpy as np
import pytest

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcp_lab.simulation.reference import copies, draw, rank_ordered
from dlcpd.core.session.events import PeerNews, PeerState
from dlcpd.core.session.liveness import PINGS_BEFORE_LOST

WORLD = 4
COUNT = 20_000
PATIENT = 30.0


def network(*, paths: int = 1, loss: float = 0.0) -> SimNetwork:
    return SimNetwork(
        WORLD, SimLink(delay=1e-3, loss=loss), paths=paths, peer_timeout=PATIENT, suspect_after=1.0
    )


def news(net: SimNetwork, rank: int) -> list[tuple[int, PeerState]]:
    """What a rank was told of its peers' silence."""
    return [(e.rank, e.state) for e in net.events[rank] if isinstance(e, PeerNews)]


@pytest.mark.parametrize("paths", [1, 2])
@pytest.mark.parametrize("seconds", [2.0, 10.0, 25.0])
@pytest.mark.parametrize("at", [0.0, 4e-3, 12e-3])
def test_operations_go_on_when_a_host_comes_back(seconds: float, at: float, paths: int) -> None:
    net = network(paths=paths, loss=0.01)
    parts = draw("float32", WORLD, COUNT, 1)
    expected = rank_ordered(copies(parts), "float32", "sum")
    net.submit_all(1, parts)
    net.run(until=at)
    stopped_at = net.now
    net.stop(2)
    net.run(until=seconds)
    net.now = stopped_at + seconds
    net.go_on(2)
    net.run(until=3.0, enough=lambda: net.ended(1))
    assert net.ended(1)
    assert net.now - stopped_at - seconds < 1.0  # no timer has backed off for ages
    for part in parts:
        assert np.array_equal(part.view(np.uint8), expected.view(np.uint8))
    assert not any(session.broken for session in net.sessions)


def test_a_paused_host_is_suspected_after_a_second_and_heard_again() -> None:
    net = network()
    net.submit_all(1, draw("float32", WORLD, COUNT, 1))
    net.run(until=4e-3)
    net.stop(2)
    net.run(until=0.9)
    assert not any(news(net, rank) for rank in range(WORLD))
    net.run(until=9.1)
    for rank in (0, 1, 3):
        assert news(net, rank) == [(2, PeerState.SUSPECTED)]
    net.go_on(2)
    net.run(until=3.0)
    for rank in (0, 1, 3):
        assert news(net, rank) == [(2, PeerState.SUSPECTED), (2, PeerState.HEARD)]
    assert news(net, 2) == []  # it was asleep itself: it suspects nobody
    assert net.ended(1)


def test_a_host_that_stands_still_for_longer_than_peer_timeout_is_lost_by_name() -> None:
    net = network()
    net.submit_all(1, draw("float32", WORLD, COUNT, 1))
    net.run(until=4e-3)
    net.stop(2)
    net.run(until=40.0)
    for rank in (0, 1, 3):
        failed = net.failed(rank)[1]
        assert (failed.code, failed.peer[:2]) == ("peer_lost", (2, "host2"))
    net.go_on(2)
    net.run(until=0.5)
    assert net.sessions[2].broken is None  # 40 s of its own sleep are no silence of its peers


def test_all_hosts_may_stand_still_together() -> None:
    """A machine that runs all ranks of a test is suspended, or a rack is."""
    net = network()
    parts = draw("float32", WORLD, COUNT, 1)
    expected = rank_ordered(copies(parts), "float32", "sum")
    net.submit_all(1, parts, deadline=1e5)
    net.run(until=4e-3)
    for rank in range(WORLD):
        net.stop(rank)
    net.run(until=1.0)
    net.now += 3600.0
    for rank in range(WORLD):
        net.go_on(rank)
    net.run(until=3.0)
    assert net.ended(1)
    assert not any(session.broken for session in net.sessions)
    assert not any(news(net, rank) for rank in range(WORLD))
    for part in parts:
        assert np.array_equal(part.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("period", [0.1, 0.5, 2.0])
def test_a_starved_engine_loses_no_peer_that_answers(period: float) -> None:
    """Rank 0 runs for a moment in every `period`; rank 1 has yet to submit, and answers."""
    net = SimNetwork(2, peer_timeout=1.0)
    net.submit(0, 1, np.zeros(1000, np.float32))
    for _ in range(int(40 / period)):
        net.stop(0)
        asleep_at = net.now
        net.run(until=period)
        net.now = asleep_at + period
        net.go_on(0)
        net.run(until=1e-3)
    assert net.sessions[0].broken is None
    net.submit(1, 1, np.zeros(1000, np.float32))
    net.run()
    assert 1 in net.done(0)


def test_a_starved_engine_finds_a_dead_peer_in_the_end() -> None:
    net = SimNetwork(2, peer_timeout=1.0)
    net.submit(0, 1, np.zeros(1000, np.float32))
    net.cut.add(1)
    began = net.now
    while net.sessions[0].broken is None:
        net.stop(0)
        net.now += 0.49
        net.go_on(0)
        net.run(until=1e-2)
        assert net.now - began < 60.0


def test_own_sleep_after_unanswered_pings_is_no_silence_of_the_peer() -> None:
    """The peer was cut off for a moment, and left many pings unanswered; then this host slept."""
    net = SimNetwork(2, peer_timeout=1.0)
    net.submit(0, 1, np.zeros(1000, np.float32))
    net.cut.add(1)
    net.run(until=0.8)
    assert net.sessions[0].flows[1].unanswered >= PINGS_BEFORE_LOST
    net.cut.clear()
    net.stop(0)
    net.now += 10.0
    net.go_on(0)
    net.run(until=0.5)
    assert net.sessions[0].broken is None
    net.submit(1, 1, np.zeros(1000, np.float32))
    net.run()
    assert 1 in net.done(0)
