"""A rank that leaves with its last result does not take the others' results with it."""

import numpy as np

from dlcpd.contract.errors import PeerLost
from dlcpd.core.events import OperationDone, OperationFailed, SessionBroken
from tests.sim.network import Link, SimNetwork

GONE = PeerLost("rank 0 on host0 left")


def kinds(net: SimNetwork, rank: int) -> list[type]:
    return [type(event) for event in net.events[rank]]


def finished_by_rank_0_only() -> SimNetwork:
    """Three ranks; run until rank 0 is through and rank 1 is not."""
    for seed in range(200):
        net = SimNetwork(3, Link(loss=0.3), seed=seed)
        for rank in range(3):
            net.submit(rank, 1, np.ones(600, np.float32))
        for _ in range(400):
            net.run(until=1e-4)
            net.now += 1e-4
            done = [OperationDone in kinds(net, rank) for rank in range(3)]
            if done[0] and not done[1]:
                return net
            if all(done):
                break
    raise AssertionError("no seed leaves rank 0 through before rank 1")


def test_the_rest_of_an_operation_goes_on_without_a_rank_that_has_its_result() -> None:
    net = finished_by_rank_0_only()
    net.cut.add(0)
    net.sessions[1].peer_gone(0, GONE)
    net.sessions[2].peer_gone(0, GONE)
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
    net.sessions[1].peer_gone(0, GONE)
    net.run(until=0.01)
    failed = [e for e in net.events[1] if isinstance(e, OperationFailed)]
    assert [(e.code, e.text) for e in failed] == [("peer_lost", "rank 0 on host0 left")]


def test_an_idle_session_hears_of_it_at_once() -> None:
    net = SimNetwork(2)
    net.sessions[1].peer_gone(0, GONE)
    net.run(until=0.01)
    assert kinds(net, 1) == [SessionBroken]
