"""A rank that leaves with its last result does not take the others' results with it."""

import numpy as np
import pytest

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcpd.contract.errors import Peer, PeerLost, SessionClosed
from dlcpd.core.session.events import OperationDone, OperationFailed, SessionBroken

GONE = PeerLost("rank 0 on host0 left", Peer(0, "host0"))


def kinds(net: SimNetwork, rank: int) -> list[type]:
    return [type(event) for event in net.events[rank]]


class DeafToEachOther:
    """A network that loses the results which ranks 1 and 2 send to each other."""

    def __init__(self, net: SimNetwork) -> None:
        self.net = net

    def __call__(self, source: int, target: int, data: bytes) -> list[bytes]:
        lost = {source, target} == {1, 2} and self.net.is_result(source, target, data)
        return [] if lost else [data]


def finished_by_rank_0_only() -> SimNetwork:
    """Three ranks; rank 0 is through, the others still wait for each other's results."""
    net = SimNetwork(3, SimLink(loss=0.1))
    net.tamper = DeafToEachOther(net)
    net.submit_all(1, [np.ones(600, np.float32) for _ in range(3)])
    net.run(until=0.3)
    net.now += 0.3
    assert [OperationDone in kinds(net, rank) for rank in range(3)] == [True, False, False]
    net.tamper = None
    return net


def test_the_rest_of_an_operation_goes_on_without_a_rank_that_has_its_result() -> None:
    net = finished_by_rank_0_only()
    net.cut.add(0)
    net.sessions[1].peer_gone(0, GONE, net.now)
    net.sessions[2].peer_gone(0, GONE, net.now)
    net.run()
    for rank in (1, 2):
        assert OperationDone in kinds(net, rank)
        assert OperationFailed not in kinds(net, rank)
        assert kinds(net, rank)[-1] is SessionBroken  # after all results, so that none is lost


def test_what_still_needs_the_rank_fails_with_its_name() -> None:
    net = SimNetwork(3)
    for rank in (1, 2):
        net.submit(rank, 1, np.ones(600, np.float32))
    net.run(until=0.01)
    net.sessions[1].peer_gone(0, GONE, net.now)
    net.run(until=0.01)
    failed = [e for e in net.events[1] if isinstance(e, OperationFailed)]
    assert [(e.code, e.text) for e in failed] == [("peer_lost", "rank 0 on host0 left")]
    assert failed[0].peer == (0, "host0", "", "rank(s) 0 to submit operation 1")


def test_an_idle_session_hears_of_it_at_once() -> None:
    net = SimNetwork(2)
    net.sessions[1].peer_gone(0, GONE, net.now)
    net.run(until=0.01)
    assert kinds(net, 1) == [SessionBroken]


def test_a_second_rank_that_dies_is_named_too() -> None:
    net = finished_by_rank_0_only()
    net.cut |= {0, 2}
    net.sessions[1].peer_gone(0, GONE, net.now)
    begin = net.now
    net.run(until=3.0)
    failed = [e for e in net.events[1] if isinstance(e, OperationFailed)]
    assert [e.code for e in failed] == ["peer_lost"]
    assert "rank 2 on host2" in failed[0].text
    assert [e.text for e in net.events[1] if isinstance(e, SessionBroken)] == [str(GONE)]
    assert net.now - begin < 2.0


def test_the_silence_of_the_one_that_left_is_no_news() -> None:
    """The others need longer than the time after which a silent peer counts as lost."""
    net = finished_by_rank_0_only()
    net.cut.add(0)
    for rank in (1, 2):
        net.sessions[rank].peer_gone(0, GONE, net.now)
    net.tamper = DeafToEachOther(net)
    net.run(until=3.0)
    net.now += 3.0
    assert OperationFailed not in kinds(net, 1)
    net.tamper = None
    net.run()
    for rank in (1, 2):
        assert OperationDone in kinds(net, rank)
        assert OperationFailed not in kinds(net, rank)


def test_the_last_words_of_a_session_release_its_peers() -> None:
    """What may wait for company is told before the session ends."""
    net = SimNetwork(2)
    net.submit_all(1, [np.ones(30_000, np.float32) for _ in range(2)], in_place=False)
    while OperationDone not in kinds(net, 0):
        net.run(until=1e-5)
        net.now += 1e-5
    assert net.sessions[1].operations  # rank 0 has its results and has not said so yet
    for control in net.endpoints[0].final_controls(net.sessions[0].number, net.now):
        net.inject(1, control.data)
    net.cut.add(0)
    net.run(until=0.01)
    assert not net.sessions[1].operations


def test_nothing_more_can_be_submitted() -> None:
    net = SimNetwork(2)
    net.sessions[1].peer_gone(0, GONE, net.now)
    with pytest.raises(PeerLost, match="rank 0 on host0 left"):
        net.submit(1, 1, np.ones(600, np.float32))
    net.sessions[1].peer_gone(0, PeerLost("told twice"), net.now)
    net.sessions[1].fail_all(1, SessionClosed("the client ended"))
    net.run(until=0.01)
    assert kinds(net, 1) == [SessionBroken]


def without_its_peers(*, over: bool) -> SimNetwork:
    """Rank 2 ended, then rank 0, before rank 1 submitted the next operation."""
    net = SimNetwork(3)
    net.submit_all(1, [np.ones(600, np.float32) for _ in range(3)])
    net.run()
    for rank in (2, 0):
        left = PeerLost(f"rank {rank} on host{rank} left", Peer(rank, f"host{rank}"))
        begun = net.sessions[rank].departures.begun_with(1)
        net.sessions[1].peer_left(rank, begun, left, net.now)
        if over:
            net.sessions[1].peer_gone(rank, left, net.now)
    net.cut |= {0, 2}
    return net


def test_the_rank_that_left_first_is_named() -> None:
    """The others may have left because of it."""
    net = without_its_peers(over=True)
    with pytest.raises(PeerLost, match="rank 2 on host2 left") as caught:
        net.submit(1, 2, np.ones(600, np.float32))
    assert caught.value.peer.rank == 2

    net = without_its_peers(over=False)
    net.submit(1, 2, np.ones(600, np.float32))
    net.run(until=0.01)
    failed = [e for e in net.events[1] if isinstance(e, OperationFailed)]
    assert [(e.peer.rank, e.peer.awaiting) for e in failed] == [
        (2, "rank(s) 0, 2 to submit operation 2")
    ]
