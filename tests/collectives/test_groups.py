"""Groups and messages beside each other: each ends for itself, and what fails is named."""

from typing import Any

import numpy as np
import pytest

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcp_lab.simulation.reference import draw, rank_ordered
from dlcpd.collectives.execution import Execution
from dlcpd.collectives.order import Group
from dlcpd.contract.errors import OperationAborted, SessionClosed, TooMany
from dlcpd.core.session.mailbox import ANY
from dlcpd.core.session.rendezvous import MAX_OPEN
from dlcpd.core.session.stream import MAX_AHEAD
from dlcpd.core.session.stream_ids import messages
from dlcpd.core.wire.control import Ready
from dlcpd.core.wire.header import Header, Kind
from dlcpd.schedules.builders.all_to_all import all_to_all
from dlcpd.schedules.builders.barrier import barrier
from dlcpd.schedules.builders.point_to_point import receive, send
from dlcpd.schedules.model import Program

BAD = SimLink(loss=0.05, duplicate=0.02, jitter=100e-6)
NONE = np.zeros(0, np.float32)


def group_of(number: int, members: tuple[int, ...], rank: int, name: str = "") -> Group:
    return Group(number, members, members.index(rank), name or f"g{number}")


def all_reduce(
    net: SimNetwork,
    ticket: int,
    number: int,
    members: tuple[int, ...],
    parts: list[np.ndarray],
    **options: Any,
) -> None:
    """By all members of a group; `parts` become the result."""
    for rank, part in zip(members, parts, strict=True):
        net.submit(rank, ticket, part, group=group_of(number, members, rank), **options)


def assert_idle(net: SimNetwork) -> None:
    """Nothing is open, nothing is due."""
    for rank, session in enumerate(net.sessions):
        assert not session.operations
        assert not session.mailbox.receivers
        assert session.broken is None
        assert net.endpoints[rank].next_timeout() is None


# --- collectives --------------------------------------------------------------------------


@pytest.mark.parametrize("link", [SimLink(), BAD], ids=["good", "bad"])
@pytest.mark.parametrize("seed", range(3))
def test_groups_in_flight_at_once(link: SimLink, seed: int) -> None:
    """All ranks, and two groups that share rank 2; each counts for itself."""
    net = SimNetwork(4, link, seed=seed, paths=1 + seed % 2)
    groups = {0: (0, 1, 2, 3), 3: (2, 0), 9: (1, 3, 2)}
    wanted = []
    for ticket in range(1, 13):
        number = (0, 3, 9)[ticket % 3]
        parts = draw("float32", len(groups[number]), 90 * ticket, ticket)
        wanted.append((parts, rank_ordered(parts, "float32", "sum")))
        all_reduce(net, ticket, number, groups[number], parts)
    net.run()
    for parts, expected in wanted:
        assert all((part == expected).all() for part in parts)
    assert [len(net.done(rank)) for rank in range(4)] == [8, 8, 12, 8]
    assert_idle(net)


def test_a_group_waits_for_nobody_outside_it() -> None:
    net = SimNetwork(3)
    net.cut.add(2)
    parts = draw("float32", 2, 500, 1)
    expected = rank_ordered(parts, "float32", "sum")
    all_reduce(net, 1, 1, (1, 0), parts)
    net.run()
    assert all((part == expected).all() for part in parts)
    assert_idle(net)


def test_a_group_that_ranks_see_differently_fails_by_name_and_another_goes_on() -> None:
    """Rank 2 is a member for rank 0 and itself, and not for rank 1."""
    net = SimNetwork(3)
    seen = {0: (0, 1, 2), 1: (0, 1), 2: (0, 1, 2)}
    for rank, members in seen.items():
        group = group_of(4, members, rank, "pipeline")
        net.submit(rank, 1, np.ones(500, np.float32), group=group, deadline=5.0)
    parts = draw("float32", 3, 500, 1)
    expected = rank_ordered(parts, "float32", "sum")
    all_reduce(net, 2, 5, (0, 1, 2), parts)
    begin = net.now
    net.run()
    for rank in range(3):
        failed = net.failed(rank)[1]
        assert "group pipeline" in failed.text
        assert set(net.done(rank)) == {2}
    assert net.failed(1)[1].code == "ranks_disagree"
    assert "rank 0 on host0 submitted" in net.failed(1)[1].text
    assert "rank 1 on host1 submitted" in net.failed(0)[1].text
    assert "rank(s) 1 to submit operation 1 of group pipeline" in net.failed(2)[1].text
    assert all((part == expected).all() for part in parts)
    assert net.now - begin <= 5.5
    assert_idle(net)


@pytest.mark.parametrize("first", [1, 2])
def test_a_rank_that_is_no_member_is_named_whoever_comes_first(first: int) -> None:
    """It exchanges no bytes, so that only the ranks themselves disagree."""
    net = SimNetwork(3)
    for rank in (first, 3 - first):
        members = (0, 1, 2)[: rank + 1]  # rank 1 knows of two ranks only
        operation = net.operation(
            rank,
            1,
            NONE,
            program=barrier(rank, len(members)),
            terms="barrier",
            group=group_of(4, members, rank),
            deadline=5.0,
        )
        net.sessions[rank].submit(operation, 4, net.now)
        net.run(until=0.1)
    assert net.failed(1)[1].code == "ranks_disagree"
    assert "rank 2 on host2 takes part in it, which rank 1 here does not expect" in (
        net.failed(1)[1].text
    )
    assert set(net.failed(1)[1].ranks) == {0, 2}, "the one that it does not expect hears, too"


def exchange(net: SimNetwork, rank: int, sends: list[int], awaits: list[int]) -> None:
    """All-to-all of so many bytes to each rank, and from each."""
    program = all_to_all(rank, tuple(sends), tuple(awaits))
    operation = net.operation(
        rank,
        1,
        np.full(sum(sends), rank, np.uint8),
        dtype="uint8",
        program=program,
        output=np.zeros(sum(awaits), np.uint8),
        terms="all_to_all of uint8",
        deadline=5.0,
        digest_every=0,
    )
    net.sessions[rank].submit(operation, 0, net.now)


def test_sizes_that_disagree_pairwise_are_told_with_both_sides() -> None:
    net = SimNetwork(3)
    exchange(net, 0, [8, 100, 300], [8, 100, 300])
    exchange(net, 1, [100, 8, 200], [100, 8, 200])
    exchange(net, 2, [300, 199, 8], [300, 200, 8])  # rank 1 awaits one byte more
    net.run()
    assert [net.failed(rank)[1].code for rank in (1, 2)] == ["ranks_disagree"] * 2
    assert "sends 199 B to its peer, awaits 200 B" in net.failed(1)[1].text
    assert "sends 200 B to its peer, awaits 200 B" in net.failed(1)[1].text
    assert_ends(net)


def assert_ends(net: SimNetwork) -> None:
    """Every rank has one outcome of its first operation, and nothing goes on."""
    for rank in range(net.world_size):
        assert (1 in net.done(rank)) != (1 in net.failed(rank))
    assert_idle(net)


def test_sizes_that_agree_pairwise_may_all_differ() -> None:
    net = SimNetwork(3, BAD, seed=1)
    sizes = [[1, 700, 0], [40, 5, 9000], [333, 64, 2]]  # from rank to rank
    for rank in range(3):
        exchange(net, rank, sizes[rank], [row[rank] for row in sizes])
    operations = [net.open(rank, 1) for rank in range(3)]
    net.run()
    for rank, operation in enumerate(operations):
        got = operation.memory[1]
        want = np.repeat(np.arange(3, dtype=np.uint8), [row[rank] for row in sizes])
        assert (got == want).all()
    assert_idle(net)


@pytest.mark.parametrize("first", [0, 1])
def test_a_schedule_that_differs_is_told(first: int) -> None:
    net = SimNetwork(2)
    for rank in (first, 1 - first):
        net.submit(rank, 1, np.ones(500, np.float32), fingerprint=0xA0 + rank, deadline=5.0)
    net.run()
    for rank in range(2):
        failed = net.failed(rank)[1]
        assert failed.code == "ranks_disagree"
        assert "the rest as 00000000000000a0" in failed.text
        assert "the rest as 00000000000000a1" in failed.text


def test_operations_of_a_closed_group_fail_and_others_go_on() -> None:
    net = SimNetwork(2)
    for ticket, number in ((1, 7), (2, 0)):
        net.submit(0, ticket, np.ones(500, np.float32), group=group_of(number, (0, 1), 0))
    wait(net, 0, 3, ANY, group=7)
    wait(net, 0, 4, ANY, group=0)
    net.sessions[0].fail_group(7, SessionClosed("group 7 was closed with operations open"))
    net.run(until=0.1)
    assert {ticket: e.code for ticket, e in net.failed(0).items()} == {
        1: "session_closed",
        3: "session_closed",
    }
    net.submit(1, 2, np.ones(500, np.float32), group=group_of(0, (0, 1), 1))
    offer(net, 1, 4, 0, np.ones(4, np.float32), group=0)
    net.run()
    assert set(net.done(0)) == {2, 4}
    net.abort(1, 1, OperationAborted("told by control"))
    assert_idle(net)


@pytest.mark.parametrize("link", [SimLink(), BAD], ids=["good", "bad"])
@pytest.mark.parametrize("world", [2, 5])
def test_nobody_leaves_a_barrier_before_all_are_there(world: int, link: SimLink) -> None:
    net = SimNetwork(world, link, seed=world)
    for rank in range(world):
        assert not any(net.done(other) for other in range(world))
        operation = net.operation(rank, 1, NONE, program=barrier(rank, world), terms="barrier")
        net.sessions[rank].submit(operation, 0, net.now)
        net.run(until=0.05)
        net.now += 0.05
    net.run()
    assert [set(net.done(rank)) for rank in range(world)] == [{1}] * world
    assert [net.released(rank) for rank in range(world)] == [{1}] * world
    assert_idle(net)


def test_what_is_done_here_still_serves_peers_after_its_group_was_closed() -> None:
    """A member may close a group as soon as it has its own last result."""
    net = SimNetwork(2, SimLink(loss=0.05), seed=4)
    data = draw("float32", 1, 20_000, 1)[0]
    operation = net.operation(
        0,
        1,
        data,
        program=send(0, 1, data.nbytes),
        output=NONE,
        group=everybody(net, 0, 7),
        terms="message",
        digest_every=0,
        in_place=False,
    )
    net.sessions[0].submit_send(operation, 7, 1, net.now)
    net.sessions[0].fail_group(7, SessionClosed("group 7 was closed"))
    place = wait(net, 1, 1, 0, count=20_000, group=7)
    net.run()
    assert (place == data).all()
    assert_idle(net)


# --- messages -----------------------------------------------------------------------------


def everybody(net: SimNetwork, rank: int, number: int) -> Group:
    """All ranks, as a group of that number."""
    return group_of(number, tuple(range(net.world_size)), rank)


def offer(
    net: SimNetwork,
    rank: int,
    ticket: int,
    peer: int,
    data: np.ndarray,
    *,
    tag: int = 0,
    group: int = 0,
    deadline: float = 60.0,
) -> Execution:
    """Send `data` to `peer`."""
    operation = net.operation(
        rank,
        ticket,
        data,
        program=send(rank, peer, data.nbytes),
        output=NONE,
        tag=tag,
        group=everybody(net, rank, group),
        deadline=deadline,
        terms="message",
        digest_every=0,
    )
    net.sessions[rank].submit_send(operation, group, peer, net.now)
    return operation


def wait(
    net: SimNetwork,
    rank: int,
    ticket: int,
    peer: int,
    *,
    count: int = 4,
    tag: int = 0,
    group: int = 0,
    deadline: float = 60.0,
) -> np.ndarray:
    """Receive `count` elements from `peer`, or ANY; returns their place."""
    place = np.full(count, np.nan, np.float32)
    known = Program((), frozenset()) if peer == ANY else receive(rank, peer, place.nbytes)
    operation = net.operation(
        rank,
        ticket,
        NONE,
        program=known,
        output=place,
        tag=tag,
        group=everybody(net, rank, group),
        deadline=deadline,
        terms="message",
        digest_every=0,
    )
    if peer == ANY:
        operation.receiving = lambda sender: receive(rank, sender, place.nbytes)
    net.sessions[rank].submit_receive(operation, group, peer, tag, net.now)
    return place


def four(value: float) -> np.ndarray:
    return np.full(4, value, np.float32)


@pytest.mark.parametrize("peer", [1, ANY])
@pytest.mark.parametrize("first", ["send", "receive"])
@pytest.mark.parametrize("count", [4, 20_000])
def test_a_message_arrives_whoever_comes_first(count: int, first: str, peer: int) -> None:
    net = SimNetwork(2, BAD, seed=count)
    data = draw("float32", 1, count, 1)[0]
    if first == "send":
        offer(net, 1, 1, 0, data.copy())
        net.run(until=0.5)
        assert bool(net.done(1)) is (count == 4)  # its data left with READY
        place = wait(net, 0, 1, peer, count=count)
    else:
        place = wait(net, 0, 1, peer, count=count)
        net.run(until=0.5)
        offer(net, 1, 1, 0, data.copy())
    net.run()
    assert (place == data).all()
    assert net.done(0)[1].source == 1
    assert net.released(0) == net.released(1) == {1}
    assert_idle(net)


def test_an_empty_message_is_sent_before_anybody_receives_it() -> None:
    """It has no bytes to wait for; its receiver learns all the same that it was sent."""
    net = SimNetwork(2)
    operation = net.operation(
        0,
        1,
        NONE,
        program=send(0, 1, 0),
        output=NONE,
        group=everybody(net, 0, 0),
        terms="buffered",
        digest_every=0,
    )
    net.sessions[0].submit_send(operation, 0, 1, net.now)
    net.run(until=0.0)
    assert set(net.done(0)) == {1}
    other = net.operation(
        1,
        1,
        NONE,
        program=receive(1, 0, 0),
        output=NONE,
        group=everybody(net, 1, 0),
        terms="buffered",
        digest_every=0,
    )
    net.run(until=0.5)
    assert not net.done(1)
    net.sessions[1].submit_receive(other, 0, 0, 0, net.now)
    net.run()
    assert set(net.done(1)) == {1}
    assert_idle(net)


def test_messages_of_one_tag_keep_their_order_and_tags_do_not_wait_for_each_other() -> None:
    net = SimNetwork(2, BAD, seed=3)
    for ticket in range(1, 31):
        offer(net, 1, ticket, 0, four(ticket), tag=ticket % 3)
    net.run(until=0.5)
    places = {}
    for ticket, tag in enumerate([2] * 10 + [0] * 10 + [1] * 10, 1):
        places[ticket] = wait(net, 0, ticket, 1, tag=tag)
    net.run()
    got = [int(place[0]) for place in places.values()]
    assert got[:10] == list(range(2, 31, 3))
    assert got[10:20] == list(range(3, 31, 3))
    assert got[20:] == list(range(1, 31, 3))
    assert_idle(net)


def test_receivers_of_any_rank_get_each_message_once() -> None:
    net = SimNetwork(4, BAD, seed=4)
    places = [wait(net, 0, ticket, ANY) for ticket in range(1, 10)]
    for ticket in range(1, 4):
        for rank in (1, 2, 3):
            offer(net, rank, ticket, 0, four(10 * rank + ticket))
    net.run()
    got = sorted(int(place[0]) for place in places)
    assert got == [11, 12, 13, 21, 22, 23, 31, 32, 33]
    for ticket, place in enumerate(places, 1):
        assert net.done(0)[ticket].source == int(place[0]) // 10
    for rank in (1, 2, 3):  # in order, rank by rank
        mine = [int(place[0]) for place in places if int(place[0]) // 10 == rank]
        assert mine == sorted(mine)
    assert_idle(net)


def test_messages_both_ways_and_of_two_groups_at_once() -> None:
    net = SimNetwork(3, BAD, seed=5)
    places = {}
    for group in (0, 6):
        for rank in range(3):
            for peer in {0, 1, 2} - {rank}:
                ticket = 10 * group + 3 * rank + peer
                offer(net, rank, ticket, peer, four(ticket), group=group)
                places[rank, 100 + ticket] = wait(net, rank, 100 + ticket, peer, group=group)
    net.run()
    for (rank, ticket), place in places.items():
        group, peer = divmod(ticket - 100 - 3 * rank, 10)
        assert (place == 10 * group + 3 * peer + rank).all()
    assert_idle(net)


def test_a_message_that_nobody_receives_fails_at_its_deadline_by_name() -> None:
    net = SimNetwork(2)
    offer(net, 1, 1, 0, np.ones(20_000, np.float32), deadline=2.0)
    begin = net.now
    net.run()
    failed = net.failed(1)[1]
    assert failed.code == "deadline_exceeded"
    assert "rank(s) 0 to submit message 1" in failed.text
    assert net.now - begin < 2.5
    assert failed.ranks == (0,)
    net.sessions[0].abort(
        1, failed.stream, failed.number, OperationAborted("rank 1 aborted"), net.now
    )
    assert not net.sessions[0].mailbox.messages
    assert_idle(net)


def test_a_message_that_was_aborted_is_not_received_and_the_next_one_is() -> None:
    net = SimNetwork(2)
    offer(net, 1, 1, 0, np.ones(20_000, np.float32), deadline=0.5)
    net.run()
    failed = net.failed(1)[1]
    net.sessions[0].abort(
        1, failed.stream, failed.number, OperationAborted("rank 1 aborted"), net.now
    )
    place = wait(net, 0, 1, 1)
    offer(net, 1, 2, 0, four(2))
    net.run()
    assert (place == 2).all()
    assert_idle(net)


def test_an_offer_that_comes_after_an_abort_is_ignored() -> None:
    """Control may be quicker than the network."""
    net = SimNetwork(2, SimLink(delay=5e-3))
    sent = offer(net, 1, 1, 0, four(1))
    net.run(until=0.0)
    stream, _, number = sent.id
    net.sessions[0].abort(1, stream, number, OperationAborted("rank 1 aborted"), net.now)
    net.run(until=0.1)
    place = wait(net, 0, 1, ANY)
    net.run(until=0.1)
    assert not net.done(0)
    net.sessions[1].abort(0, stream, number, OperationAborted("told back"), net.now)
    offer(net, 1, 2, 0, four(2))
    net.run()
    assert (place == 2).all()


def test_aborted_messages_do_not_use_up_the_numbers_of_later_ones() -> None:
    net = SimNetwork(2)
    session = net.sessions[0]
    for ticket in range(1, MAX_AHEAD + 3):
        sent = offer(net, 1, ticket, 0, four(ticket))
        net.run(until=1e-3)
        stream, _, number = sent.id
        for rank, other in ((0, 1), (1, 0)):
            net.sessions[rank].abort(other, stream, number, OperationAborted("enough"), net.now)
    assert not session.streams[stream, 1]._beyond  # noqa: SLF001
    place = wait(net, 0, 1, 1)
    offer(net, 1, MAX_AHEAD + 3, 0, four(5))
    net.run(until=1.0)
    assert (place == 5).all()


@pytest.mark.parametrize("peer", [1, ANY])
def test_a_receiver_that_nobody_serves_fails_at_its_deadline_by_name(peer: int) -> None:
    net = SimNetwork(2)
    wait(net, 0, 1, peer, deadline=2.0)
    offer(net, 1, 1, 0, four(1), tag=9)  # not for it
    begin = net.now
    net.run(until=10.0)
    failed = net.failed(0)[1]
    assert failed.code == "deadline_exceeded"
    assert "message" in failed.text
    assert ("rank(s) 1 to submit" in failed.text) == (peer == 1)
    assert not net.sessions[0].mailbox.receivers
    assert net.now - begin < 30.0


def test_a_receiver_of_a_rank_that_is_lost_fails_by_name() -> None:
    net = SimNetwork(3)
    wait(net, 0, 1, 2)
    net.cut.add(2)
    net.run()
    assert net.failed(0)[1].code == "peer_lost"
    assert "rank 2 on host2" in net.failed(0)[1].text


def test_a_message_of_another_size_is_told_on_both_sides() -> None:
    net = SimNetwork(2)
    wait(net, 0, 1, 1, count=5, deadline=5.0)
    offer(net, 1, 1, 0, np.ones(20_000, np.float32), deadline=5.0)
    net.run()
    for rank in range(2):
        failed = net.failed(rank)[1]
        assert failed.code == "ranks_disagree"
        assert "message 1" in failed.text
    assert "sends 80000 B" in net.failed(0)[1].text
    assert "awaits 20 B" in net.failed(0)[1].text
    assert_idle(net)


def test_a_small_message_of_another_size_is_told_to_its_receiver() -> None:
    """Its data left with READY, so its sender is done."""
    net = SimNetwork(2)
    wait(net, 0, 1, 1, count=5, deadline=5.0)
    offer(net, 1, 1, 0, four(1), deadline=5.0)
    net.run()
    assert net.failed(0)[1].code == "ranks_disagree"
    assert "sends 16 B" in net.failed(0)[1].text
    assert net.done(1)[1]
    assert_idle(net)


def test_receivers_count_as_operations_in_flight() -> None:
    net = SimNetwork(2)
    for ticket in range(1, MAX_OPEN + 1):
        wait(net, 0, ticket, 1)
    with pytest.raises(TooMany):
        wait(net, 0, MAX_OPEN + 1, 1)
    with pytest.raises(TooMany):
        net.submit(0, MAX_OPEN + 1, four(1))
    assert len(net.sessions[0].mailbox.receivers) == MAX_OPEN


def test_a_message_whose_turn_comes_by_an_abort_begins_when_the_abort_came() -> None:
    """Not when the session last did something else."""
    net = SimNetwork(2)
    wait(net, 0, 1, 1)
    session, stream = net.sessions[0], messages(0, 1, 0)
    header = Header(Kind.READY, net.token(0, 1), 2, stream)
    ready = Ready("message", 0, 128, outgoing=16)
    session.rendezvous.on_ready(session.flows[1], header, ready.pack(), net.now)
    assert not session.operations  # the first message has yet to come
    net.now += 5.0
    session.abort(1, stream, 1, OperationAborted("rank 1 aborted"), net.now)
    [operation] = session.operations.values()
    assert operation.begun == net.now
