"""P8: stale packets do nothing, from an earlier operation, session or failure alike."""

import struct

import numpy as np
import pytest

from dlcp_lab.simulation.network import Carried, SimLink, SimNetwork
from dlcp_lab.simulation.reference import Tensor, copies, draw, draw_whole, rank_ordered
from dlcpd.contract.errors import OperationAborted
from dlcpd.core.wire.header import Kind


def record(net: SimNetwork, number: int, **options: object) -> list[Carried]:
    """One all-reduce; every datagram that was sent for it."""
    net.recorded = []
    net.submit_all(number, draw_whole(net.world_size, 2500, number), **options)
    net.run()
    recorded, net.recorded = net.recorded, None
    assert {data.data[1] for data in recorded} >= {Kind.DATA, Kind.READY, Kind.CREDIT}
    assert any(net.is_result(c.source, c.target, c.data) for c in recorded)
    assert any(net.is_contribution(c.source, c.target, c.data) for c in recorded)
    return recorded


def replay(net: SimNetwork, recorded: list[Carried]) -> None:
    for datagram in recorded:
        net.inject(datagram.target, datagram.data, datagram.path)


def data_datagrams(recorded: list[Carried]) -> int:
    return sum(datagram.data[1] == Kind.DATA for datagram in recorded)


@pytest.mark.parametrize("max_loss", [0.0, 0.2])
@pytest.mark.parametrize("seed", range(3))
def test_an_earlier_operation_replayed_into_a_later_one(seed: int, max_loss: float) -> None:
    net = SimNetwork(2 + seed % 2, SimLink(loss=0.1, jitter=40e-6), seed=seed, paths=2)
    world = net.world_size
    options = {"max_loss": max_loss, "name": "n"}
    recorded = record(net, 1, **options)
    residual = [accounts.residuals.size for accounts in net.accounts]
    parts = draw("float32", world, 2500, 2)
    expected, held = rank_ordered(parts, "float32", "sum"), copies(parts)
    net.submit_all(2, held, name="other")
    for _ in range(3):  # from before the first READY to after the end
        replay(net, recorded)
        net.run(until=100e-6)
        net.now += 100e-6
    replay(net, recorded)
    net.run()
    assert all((tensor == expected).all() for tensor in held)
    assert [accounts.residuals.size for accounts in net.accounts] == residual
    assert [sorted(net.done(rank)) for rank in range(world)] == [[1, 2]] * world
    assert not any(session.broken for session in net.sessions)
    assert net.counted("stale") > 0.5 * data_datagrams(recorded)


def test_an_idle_session_ignores_the_past_and_counts_it() -> None:
    net = SimNetwork(2)
    recorded = record(net, 1)
    events = [list(events) for events in net.events]
    before = net.counted("stale")
    replay(net, recorded)
    net.run()
    assert net.events == events
    assert net.counted("stale") - before == data_datagrams(recorded)


@pytest.mark.parametrize("during", [True, False])
def test_another_life_of_the_daemon_has_other_tokens(during: bool) -> None:
    """Same hosts, ranks, session and operation numbers: only the tokens differ."""
    recorded = record(SimNetwork(2, life=1), 1)
    net = SimNetwork(2, life=2)
    parts: list[Tensor] = draw("float32", 2, 6000, 2)
    expected = rank_ordered(parts, "float32", "sum")
    if during:
        net.submit_all(1, parts)
    replay(net, recorded)
    net.run()
    if during:
        assert all((tensor == expected).all() for tensor in parts)
    else:
        assert net.events == [[], []]
    assert net.counted("token") == len(recorded)


def test_a_failed_operation_stays_failed() -> None:
    net = SimNetwork(2, SimLink(delay=2e-3), recorded=[])
    net.submit_all(1, draw_whole(2, 6000, 1))
    net.run(until=5e-3)
    for rank in range(2):
        net.abort(rank, 1, OperationAborted("enough"))
    net.run()
    recorded, net.recorded = net.recorded or [], None
    events = [list(events) for events in net.events]
    before = net.counted("failed")
    replay(net, recorded)
    net.run()
    assert net.events == events
    assert net.counted("failed") - before == data_datagrams(recorded) > 0


def test_data_from_the_future_is_refused() -> None:
    ahead = SimNetwork(2)
    for number in (1, 2, 3):
        recorded = record(ahead, number)
    future = [c for c in recorded if c.data[1] == Kind.DATA]
    net = SimNetwork(2)
    held = [np.ones(6000, np.float32) for _ in range(2)]
    net.submit_all(1, held)
    for datagram in future:
        first_number = bytearray(datagram.data)
        struct.pack_into("<I", first_number, 24, 1)  # else only the path's counts were wrong
        net.inject(datagram.target, bytes(first_number), datagram.path)
    net.run()
    assert (held[0] == 2).all()
    assert net.counted("early") == len(future)
