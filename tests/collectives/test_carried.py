"""A READY that carries the data of a small operation: exact on any network, and only that."""

from collections import Counter

import numpy as np
import pytest

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcp_lab.simulation.reference import draw, rank_ordered
from dlcpd.core.session.ready_repeat import APART, MOST_CARRIED
from dlcpd.core.wire.control import most_carried
from dlcpd.core.wire.header import KIND, Flag, Header, Kind
from tests.collectives.test_groups import assert_idle as assert_at_rest
from tests.collectives.test_leaving import program

DELAY = 200e-6  # seconds
SEGMENT = 1408  # bytes
COUNT = 100  # elements of a contribution that READY carries
READY_DATA = "READY with data"


CLEAN = SimLink(delay=DELAY)


def wide(world: int = 2, link: SimLink = CLEAN) -> SimNetwork:
    """Its segments have room for a READY and some data."""
    return SimNetwork(
        world, link, segment_size=SEGMENT, one_shot=True, recorded=[], peer_timeout=30.0
    )


def carries(data: bytes) -> bool:
    """Whether a datagram is a READY with data."""
    header = Header.unpack_untrusted(data)
    return header.kind is Kind.READY and bool(header.flags & Flag.CARRIES)


def kinds(net: SimNetwork) -> Counter[str]:
    """Datagrams since the last call, by kind."""
    recorded, net.recorded = net.recorded or [], []
    return Counter(READY_DATA if carries(c.data) else Kind(c.data[KIND]).name for c in recorded)


def reduce(net: SimNetwork, number: int, count: int = COUNT, until: float = 30.0) -> None:
    """An all-reduce that all ranks end with the exact sum; the network does not come to rest."""
    parts = draw("float32", net.world_size, count, number)
    expected = rank_ordered(parts, "float32", "sum")
    net.submit_all(number, parts)
    net.run(until=until, enough=lambda: net.ended(number))
    ended = net.ended(number)  # an assertion with `net` in it takes minutes to print
    assert ended
    for part in parts:
        np.testing.assert_array_equal(part, expected)


def assert_idle(net: SimNetwork) -> None:
    """Nothing is open, due or kept."""
    assert_at_rest(net)
    for session in net.sessions:
        for rank, flow in session.flows.items():
            assert not flow.outgoing
            assert not flow.arrivals.expected
            assert not flow.arrivals.early.size
            assert session.may_carry(rank, "", MOST_CARRIED) is (flow.segment_size > MOST_CARRIED)
            assert session._state.repeater.has_room(rank, MOST_CARRIED)  # noqa: SLF001


# --- the datagrams -----------------------------------------------------------------------------


@pytest.mark.parametrize("world", [2, 4])
def test_a_small_operation_is_a_datagram_each_way_and_a_trip(world: int) -> None:
    """With digests, each READY also settles the operation before."""
    net, operations = wide(world), 20
    reduce(net, 1)
    kinds(net)
    begin = net.now
    for number in range(2, 2 + operations):
        reduce(net, number)
    took = net.now - begin
    assert took <= 1.01 * operations * DELAY
    assert kinds(net) == {READY_DATA: operations * world * (world - 1)}
    net.run()
    assert kinds(net) == {"READY_ACK": world * (world - 1)}  # of the last one
    assert net.released(0) == set(range(1, 2 + operations))
    assert_idle(net)


def test_data_that_fit_no_datagram_follow_as_data() -> None:
    terms = "sum of float32[325], max_loss 0, fill residual, class 4"
    most = most_carried(terms, SEGMENT) // 4
    for count, carried in ((most, True), (most + 1, False)):
        net = wide()
        reduce(net, 1, count)
        net.run()
        seen = kinds(net)
        assert bool(seen[READY_DATA]) is carried
        assert bool(seen["DATA"]) is not carried
        assert_idle(net)


def test_a_datagram_of_ready_with_data_is_no_longer_than_one_of_data() -> None:
    net = wide()
    terms = "sum of float32[325], max_loss 0, fill residual, class 4"
    reduce(net, 1, most_carried(terms, SEGMENT) // 4)
    lengths = [len(c.data) for c in net.recorded or () if carries(c.data)]
    assert len(lengths) == 2
    assert all(SEGMENT + 40 - 4 < length <= SEGMENT + 40 for length in lengths)


def test_sends_that_wait_for_a_peer_are_not_carried() -> None:
    """Those of the root are; those of ranks that pass the data on are not."""
    net = wide(4)
    for rank in range(4):
        made = net.operation(
            rank,
            1,
            np.full(COUNT, rank, np.float32),
            output=np.empty(COUNT, np.float32),
            in_place=False,
            terms="same",
            program=program("broadcast", "tree", rank, 4, COUNT),
        )
        net.sessions[rank].submit(made, 0, net.now)
    net.run()
    sources = {(c.source, carries(c.data)) for c in net.recorded or () if c.data[KIND] != Kind.PING}
    assert (0, True) in sources
    relays = {c.source for c in net.recorded or () if c.data[KIND] == Kind.DATA}
    assert relays
    assert not any((rank, True) in sources for rank in relays)
    assert_idle(net)


def test_sends_that_may_lose_a_part_are_not_carried() -> None:
    net = wide()
    for rank in range(2):
        memory = np.full(2 * COUNT, rank + 1, np.float32)
        made = net.operation(
            rank,
            1,
            memory,
            output=np.empty(COUNT, np.float32),
            in_place=False,
            terms="same",
            max_loss=0.5,
            name="w",
            program=program("reduce_scatter", "direct", rank, 2, 4 * COUNT),
        )
        assert not made.program.carriable
        net.sessions[rank].submit(made, 0, net.now)
    net.run()
    assert all(1 in net.done(rank) for rank in range(2))
    assert not kinds(net)[READY_DATA]


def test_data_for_a_rank_of_the_same_engine_are_not_carried() -> None:
    """They are copied to their place; READY would need two copies more."""
    net = SimNetwork(3, CLEAN, segment_size=SEGMENT, hosts=((0, 1), (2,)))
    session = net.sessions[0]
    assert [session.may_carry(rank, "", 4) for rank in (1, 2)] == [False, True]


# --- how much ------------------------------------------------------------------------------------


def test_many_operations_in_flight_carry_no_more_than_the_bound() -> None:
    net, many = wide(), 60
    results = [draw("float32", 2, 250, number) for number in range(many)]
    expected = [rank_ordered(parts, "float32", "sum") for parts in results]
    for number, parts in enumerate(results, 1):
        net.submit_all(number, parts)
    net.run(until=0.0)
    for source in range(2):
        mine = [c.data for c in net.recorded or () if c.source == source and carries(c.data)]
        assert len(mine) == MOST_CARRIED // 1000
        assert len([c for c in net.recorded or () if c.source == source]) == many
    net.run()
    for parts, total in zip(results, expected, strict=True):
        assert all((part == total).all() for part in parts)
    assert_idle(net)
    kinds(net)
    reduce(net, many + 1)  # there is room again
    assert kinds(net) == {READY_DATA: 2}


# --- bad networks ----------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [0.01, 0.05, 0.1, 0.2, 0.3])
@pytest.mark.parametrize("world", [2, 3])
def test_it_is_exact_on_a_lossy_network(loss: float, world: int) -> None:
    net = wide(world, SimLink(loss, 0.05, DELAY, 3 * DELAY))
    for number in range(1, 40):
        reduce(net, number)
    net.run()
    assert kinds(net)[READY_DATA] >= 39 * world * (world - 1)
    assert_idle(net)


def test_a_path_that_carries_nothing_costs_a_repetition() -> None:
    """READY with data goes on one path at first, then on all."""
    net = SimNetwork(
        2, SimLink(delay=DELAY), segment_size=SEGMENT, one_shot=True, recorded=[], paths=2
    )
    reduce(net, 1)
    assert sorted(c.path for c in net.recorded or ()) == [0, 0]
    kinds(net)
    net.tamper = lambda _s, _t, data: [] if data[3] == 0 else [data]  # offset 3: the path
    begin = net.now
    reduce(net, 2)
    took = net.now - begin
    assert took < 0.02
    again = [c for c in net.recorded or () if carries(c.data) and c.data[22]]  # 22: the round
    assert {c.path for c in again} == {0, 1}
    assert "DATA" not in kinds(net)


class Narrow:
    """A network that loses every datagram longer than `most` bytes, bundles as a whole."""

    def __init__(self, net: SimNetwork, most: int) -> None:
        self.net, self.most, self.lost, self.inject = net, most, 0, net.inject
        net.inject = self  # type: ignore[method-assign]  # the same signature
        net.recorded = None  # so that BUNDLEs are not taken apart

    def __call__(self, target: int, data: bytes, path: int = 0) -> None:
        self.lost += len(data) > self.most
        if len(data) <= self.most:
            self.inject(target, data, path)


def test_data_that_pass_alone_but_not_with_ready_are_sent_apart() -> None:
    """128 elements are 552 B as DATA, 655 B with READY."""
    net = wide()
    narrow, numbers = Narrow(net, 560), (1, 2, 3)
    for number in numbers:
        begin = net.now
        reduce(net, number, 128)
        took = net.now - begin
        assert took < 0.2
        assert [net.done(rank)[number].stats.sent for rank in range(2)] == [1, 1]
    assert narrow.lost >= len(numbers) * 2 * (1 + APART)
    net.run()
    assert_idle(net)


def test_data_that_do_not_pass_at_all_fail_at_the_deadline_by_name() -> None:
    net = wide()
    Narrow(net, 500)
    net.submit_all(1, draw("float32", 2, 128, 1), deadline=1.0)
    net.run()
    for rank in range(2):
        assert f"data of rank(s) {1 - rank} for operation 1" in net.failed(rank)[1].text
    assert_idle(net)
    reduce(net, 2, 16)  # what passes is taken


def test_data_that_were_sent_apart_count_once() -> None:
    """Rank 1 has added them up, but its answers are lost until they come again as DATA."""
    net = wide()
    reduce(net, 1)
    net.run()
    kinds(net)
    mute = {Kind.READY_ACK, Kind.COMPLETE}
    net.tamper = lambda s, _t, data: [] if s == 1 and data[KIND] in mute else [data]
    parts = draw("float32", 2, COUNT, 2)
    expected = rank_ordered(parts, "float32", "sum")
    net.submit_all(2, parts)
    net.run(until=0.1)
    sources = Counter(c.source for c in net.recorded or () if c.data[KIND] == Kind.DATA)
    assert set(sources) == {0}
    assert net.open(0, 2).awaited()[1] == "rank(s) 1 to take their data of operation 2"
    net.tamper = None
    net.run()
    assert all((part == expected).all() for part in parts)
    assert [net.done(rank)[2].stats.sent for rank in range(2)] == [1, 1]
    assert net.counted("stale") + net.counted("duplicate")
    reduce(net, 3)
    net.run()
    assert_idle(net)


def test_an_operation_is_open_until_its_data_have_arrived() -> None:
    """Its memory is free before: READY has a copy."""
    net = wide()
    net.tamper = lambda s, _t, data: [] if s == 0 else [data]
    parts = draw("float32", 2, COUNT, 1)
    expected = rank_ordered(parts, "float32", "sum")
    net.submit_all(1, parts)
    net.run(until=0.1)
    assert (parts[0] == expected).all()
    assert net.released(0) == {1}
    parts[0][:] = np.nan
    assert net.open(0, 1).awaited()[1] == "rank(s) 1 to take their data of operation 1"
    net.tamper = None
    net.run()
    assert (parts[1] == expected).all()
    assert_idle(net)
