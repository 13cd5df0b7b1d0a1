"""Ranks of one host that share its daemon meet in memory: nothing of theirs is on the wire."""

import numpy as np
import pytest

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcp_lab.simulation.reference import copies, draw, rank_ordered
from dlcpd.core.session.flow import Flow
from dlcpd.core.wire.header import HEADER_SIZE, KIND, Kind
from dlcpd.schedules.builders.hierarchical import hierarchical

ROUND = 22  # offset of the round in a datagram


def data_between(net: SimNetwork, host: tuple[int, ...]) -> list[int]:
    """Data datagrams that were sent from one rank of a host to another."""
    return [
        c.source
        for c in net.recorded or []
        if c.source in host and c.target in host and c.data[KIND] == Kind.DATA
    ]


def test_two_ranks_of_one_process_put_nothing_on_the_wire() -> None:
    net = SimNetwork(2, hosts=((0, 1),))
    net.recorded = []
    parts = draw("float32", 2, 20_000, 1)
    held = copies(parts)
    net.submit_all(1, held)
    net.run()
    assert all((tensor == rank_ordered(parts, "float32", "sum")).all() for tensor in held)
    assert net.recorded == []
    assert all(net.released(rank) == {1} for rank in range(2))
    assert not any(session.operations for session in net.sessions)


@pytest.mark.parametrize("loss", [0.0, 0.05])
@pytest.mark.parametrize("max_loss", [0.0, 0.05])
def test_ranks_here_and_elsewhere_are_reduced_alike(loss: float, max_loss: float) -> None:
    net = SimNetwork(4, SimLink(loss=loss, jitter=40e-6), seed=3, hosts=((0, 1), (2, 3)))
    net.recorded = []
    for number in range(1, 4):
        parts = draw("float32", 4, 3_000, number)
        held = copies(parts)
        net.submit_all(number, held, max_loss=max_loss, name="gradient")
        net.run()
        assert len({tensor.tobytes() for tensor in held}) == 1
        if not max_loss:
            assert (held[0] == rank_ordered(parts, "float32", "sum")).all()
    assert not data_between(net, (0, 1))
    assert not data_between(net, (2, 3))
    assert not any(session.operations for session in net.sessions)


def test_what_moves_in_one_turn_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large operation does not keep the process from its other sources."""
    monkeypatch.setattr("dlcpd.core.local_exchange.HERE_TURN", 10_000)
    moved: list[int] = []
    deliver = Flow.deliver

    def counted(flow: Flow, now: float, most: int) -> int:
        moved.append(deliver(flow, now, most))
        assert moved[-1] < most + 8_192  # and what was under way: a transfer
        return moved[-1]

    monkeypatch.setattr(Flow, "deliver", counted)
    net = SimNetwork(2, hosts=((0, 1),), segment_size=512)
    parts = draw("float32", 2, 100_000, 1)
    held = copies(parts)
    net.submit_all(1, held)
    net.run()
    assert all((tensor == rank_ordered(parts, "float32", "sum")).all() for tensor in held)
    assert sum(moved) >= 400_000  # bytes: half there, half back
    assert net.released(0) == net.released(1) == {1}


def test_a_rank_that_comes_late_finds_what_waited_for_it() -> None:
    net = SimNetwork(2, hosts=((0, 1),))
    parts = draw("float32", 2, 20_000, 1)
    held = copies(parts)
    net.submit(0, 1, held[0])
    net.run(until=0.3)
    assert not net.done(0)
    net.submit(1, 1, held[1])
    net.run()
    assert all((tensor == rank_ordered(parts, "float32", "sum")).all() for tensor in held)


def test_a_rank_that_closes_its_session_is_missed_by_name() -> None:
    net = SimNetwork(2, hosts=((0, 1),))
    net.submit(0, 1, np.zeros(20_000, np.float32))
    net.run(until=0.1)
    net.endpoints[1].close_session(net.sessions[1].number)
    net.run()
    assert net.failed(0)[1].code == "peer_lost"


@pytest.mark.parametrize("loss", [0.0, 0.02])
def test_between_hosts_each_rank_sends_its_share_of_the_bytes(loss: float) -> None:
    """Two hosts of two ranks: a rank exchanges half of the tensor, half of it each way."""
    hosts, count = ((0, 1), (2, 3)), 4_096
    net = SimNetwork(4, SimLink(loss=loss, jitter=40e-6), seed=5, hosts=hosts)
    net.recorded = []
    parts = draw("float32", 4, count, 1)
    held = copies(parts)
    for rank, tensor in enumerate(held):
        program = hierarchical(rank, hosts, tensor.nbytes, 2048)
        net.submit(rank, 1, tensor, program=program)
    net.run()
    assert len({tensor.tobytes() for tensor in held}) == 1
    np.testing.assert_allclose(held[0], rank_ordered(parts, "float32", "sum"), rtol=1e-4, atol=1e-5)
    first = {
        (c.target, c.data[:24]): len(c.data) - HEADER_SIZE
        for c in net.recorded
        if c.data[KIND] == Kind.DATA and not c.data[ROUND]
    }
    assert not data_between(net, (0, 1)) + data_between(net, (2, 3))
    assert sum(first.values()) == 4 * held[0].nbytes // 2
