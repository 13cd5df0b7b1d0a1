"""Small operations in one step: exact on any network, and quicker by a round trip."""

import numpy as np
import pytest

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcp_lab.simulation.reference import copies, draw, rank_ordered
from dlcpd.contract.errors import PeerLost
from dlcpd.core.session.events import OperationFailed, SessionBroken
from dlcpd.core.wire import control
from dlcpd.core.wire.header import Header, Kind
from dlcpd.schedules.builders.all_reduce import one_shot

DELAY = 200e-6  # seconds
COUNT = 1000  # elements: 32 segments of the simulated network


def small_net(world: int = 2, *, loss: float = 0.0, seed: int = 0) -> SimNetwork:
    return SimNetwork(world, SimLink(delay=DELAY, loss=loss), seed=seed, one_shot=True, recorded=[])


@pytest.mark.parametrize("world", [2, 4])
def test_it_takes_one_trip(world: int) -> None:
    net = small_net(world)
    net.submit_all(1, draw("float32", world, COUNT, 1))
    net.run()
    parts = draw("float32", world, COUNT, 2)
    expected, begin = rank_ordered(parts, "float32", "sum"), net.now
    net.submit_all(2, parts)
    net.run(until=1.2 * DELAY)
    assert all((part == expected).all() for part in parts)
    assert net.ended(2)
    assert net.now - begin <= 1.2 * DELAY
    assert not any(net.is_result(c.source, c.target, c.data) for c in net.recorded or ())


def test_a_contribution_outlives_the_result_that_overwrote_it() -> None:
    """Rank 1 asks rank 0 again when rank 0 holds the sum already, or even something newer."""
    net = small_net()
    net.submit_all(1, draw("float32", 2, COUNT, 1))
    net.run()
    net.tamper = lambda s, _t, data: [] if s == 0 and data[1] == Kind.DATA else [data]
    parts = draw("float32", 2, COUNT, 2)
    expected = rank_ordered(parts, "float32", "sum")
    net.submit_all(2, parts)
    net.run(until=3 * DELAY)
    assert 2 in net.done(0)
    assert 2 not in net.done(1)
    assert (parts[0] == expected).all()
    parts[0][:] = np.nan
    net.tamper = None
    net.run()
    assert (parts[1] == expected).all()
    assert net.released(0) == net.released(1) == {1, 2}


def test_what_a_looser_policy_waived_comes_back() -> None:
    net = small_net(loss=0.2, seed=3)
    produced = delivered = np.zeros(COUNT)
    for number, max_loss in enumerate((0.3, 0.3, 0.0), 1):
        parts = [np.full(COUNT, 1.0 + rank, np.float32) for rank in range(2)]
        produced = produced + np.sum(parts, axis=0)
        net.submit_all(number, parts, max_loss=max_loss, name="w")
        one_step = one_shot(0, 2, 4 * COUNT)
        assert (net.programs[0, number] is one_step) is not bool(max_loss)
        net.run()
        delivered = delivered + parts[0]
    assert (delivered == produced).all()
    reapplied = sum(net.done(rank)[number].stats.reapplied for rank in (0, 1) for number in (2, 3))
    assert reapplied == sum(net.done(rank)[n].stats.waived for rank in (0, 1) for n in (1, 2)) > 0


def test_nothing_is_waived_whatever_a_peer_asks() -> None:
    """A FINAL that offers to go without a segment is answered by sending it."""
    net = small_net()
    net.tamper = lambda _s, _t, data: [] if data[1] in (Kind.DATA, Kind.COMPLETE) else [data]
    parts = draw("float32", 2, COUNT, 1)
    expected = rank_ordered(parts, "float32", "sum")
    net.submit_all(1, parts)
    net.run(until=2e-3)
    final = Header(Kind.FINAL, net.token(1, 0), 1, round=1)
    body = np.packbits(np.ones(32, bool), bitorder="little").tobytes()
    net.tamper = None
    net.inject(1, control.datagram(final, body))
    net.run()
    assert not any(c.data[1] == Kind.ACK for c in net.recorded or ())
    assert all((part == expected).all() for part in parts)
    assert not any(net.done(rank)[1].stats.waived for rank in range(2))


@pytest.mark.parametrize(
    ("mute", "told"),
    [
        (Kind.READY, "rank(s) 1 to submit operation 1"),
        (Kind.DATA, "data of rank(s) 1 for operation 1"),
    ],
    ids=lambda value: str(getattr(value, "name", "")),
)
def test_what_was_waited_for_is_named(mute: Kind, told: str) -> None:
    net = small_net(3)
    net.tamper = lambda s, _t, data: [] if s == 1 and data[1] == mute else [data]
    net.submit_all(1, draw("float32", 3, COUNT, 1), deadline=0.4)
    net.run()
    assert told in net.failed(0)[1].text


def test_what_is_owed_to_a_peer_is_named_and_dropped_at_the_deadline() -> None:
    net = small_net()
    net.tamper = lambda s, _t, data: [] if s == 1 and data[1] == Kind.COMPLETE else [data]
    net.submit_all(1, draw("float32", 2, COUNT, 1), deadline=0.4)
    net.run(until=0.1)
    operation = net.open(0, 1)
    assert operation.awaited()[1] == "rank(s) 1 to take their data of operation 1"
    assert list(operation.buffers.scratch) == [0]  # the others' parts are given back
    net.run()
    assert net.released(0) == {1}
    assert not net.failed(0)


def test_ranks_with_different_results_are_found() -> None:
    """One of them adds up something else, whatever the reason."""
    net = small_net()
    net.tamper = lambda s, _t, data: (
        [data[:-1] + b"\x55"] if s == 0 and data[1] == Kind.DATA else [data]
    )
    for number in (1, 2):
        net.submit_all(number, draw("float32", 2, COUNT, number))
        net.run(until=0.1)
        net.tamper = None
    broken = [e for rank in (0, 1) for e in net.events[rank] if isinstance(e, SessionBroken)]
    assert {e.code for e in broken} == {"replica_divergence"}


@pytest.mark.parametrize("done", [True, False])
def test_a_peer_that_leaves(done: bool) -> None:
    """With our part, it leaves the operation whole; without its own, nothing can finish."""
    net = small_net()
    if not done:
        net.tamper = lambda s, _t, data: [] if s == 1 and data[1] == Kind.DATA else [data]
    else:
        net.tamper = lambda s, _t, data: [] if s == 1 and data[1] == Kind.COMPLETE else [data]
    net.submit_all(1, draw("float32", 2, COUNT, 1))
    net.run(until=5e-3)
    net.cut.add(1)
    net.sessions[0].peer_gone(1, PeerLost("rank 1 on host1 left"), net.now)
    net.run()
    failures = [e.code for e in net.events[0] if isinstance(e, OperationFailed)]
    assert failures == ([] if done else ["peer_lost"])
    assert (1 in net.released(0)) is done


def test_transfers_it_does_not_have_are_refused() -> None:
    net = small_net()
    net.submit_all(1, draw("float32", 2, COUNT, 1))
    for transfer in (1, 65535):
        header = Header(Kind.DATA, net.token(0, 1), 1, transfer=transfer, packet_number=1)
        net.inject(0, header.pack() + bytes(net.segment_size))
    net.run()
    assert net.counted("transfer") == 2


def test_a_contribution_that_comes_twice_counts_once() -> None:
    net = SimNetwork(2, SimLink(delay=DELAY, duplicate=1.0), one_shot=True)
    parts = draw("float32", 2, COUNT, 1)
    expected, held = rank_ordered(parts, "float32", "sum"), copies(parts)
    net.submit_all(1, held)
    net.run()
    assert all((tensor == expected).all() for tensor in held)
    assert net.counted("duplicate")
