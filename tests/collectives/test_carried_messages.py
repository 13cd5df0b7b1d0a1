"""Small messages that READY carries, and READYs with data that a peer must not have sent."""

from collections.abc import Callable

import numpy as np
import pytest

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcp_lab.simulation.reference import draw, rank_ordered
from dlcpd.contract.errors import OperationAborted, Peer, PeerLost, SessionClosed
from dlcpd.core.session.events import MessageWithdrawn
from dlcpd.core.session.mailbox import ANY
from dlcpd.core.wire.control import Ready, datagram
from dlcpd.core.wire.header import Flag, Header, Kind
from dlcpd.schedules.builders.barrier import barrier
from tests.collectives.test_carried import (
    CLEAN,
    COUNT,
    DELAY,
    READY_DATA,
    assert_idle,
    kinds,
    reduce,
    wide,
)
from tests.collectives.test_groups import NONE, offer, wait
from tests.collectives.test_untrusted import guarded, untouched

TERMS = "sum of float32[100], max_loss 0, fill residual, class 4"
BAD = SimLink(loss=0.1, duplicate=0.05, delay=DELAY, jitter=300e-6)


def values(ticket: int, count: int = 64) -> np.ndarray:
    return np.full(count, ticket, np.float32)


# --- messages ----------------------------------------------------------------------------------


@pytest.mark.parametrize("peer", [1, ANY])
@pytest.mark.parametrize("link", [CLEAN, BAD], ids=["good", "bad"])
def test_messages_are_done_before_their_receiver_is_there(link: SimLink, peer: int) -> None:
    net, tickets = wide(link=link), range(1, 101)
    for ticket in tickets:
        offer(net, 1, ticket, 0, values(ticket))
        if ticket % 50 == 0:  # 12.8 KB
            net.run()
    assert set(net.done(1)) == net.released(1) == set(tickets)
    still_open = list(net.sessions[1].operations)
    assert not still_open
    places = [wait(net, 0, ticket, peer, count=64) for ticket in tickets]
    net.run()
    assert [place.tolist() for place in places] == [values(t).tolist() for t in tickets]
    assert_idle(net)


def test_messages_of_which_some_were_not_kept_arrive_in_order() -> None:
    net, tickets = wide(link=BAD), range(1, 101)
    net.sessions[0].flows[1].arrivals.early.limit = 10 * 256
    for ticket in tickets:
        offer(net, 1, ticket, 0, values(ticket))
    net.run(until=0.3)
    still_open = list(net.sessions[1].operations)
    assert len(still_open) == 90  # their DATA must be sent again, also where READY has arrived
    places = [wait(net, 0, ticket, 1, count=64) for ticket in tickets]
    net.run()
    assert [int(place[0]) for place in places] == list(tickets)
    assert kinds(net)["DATA"]
    assert_idle(net)


def test_a_message_that_is_sent_apart_is_open_until_its_data_have_arrived() -> None:
    """The peer knows of it, and has no room for its data."""
    net = wide()
    net.sessions[0].flows[1].arrivals.early.limit = 0
    sent = offer(net, 1, 1, 0, values(1))
    net.run(until=0.3)
    assert kinds(net)["READY_ACK"]
    assert sent.done
    assert list(net.sessions[1].operations) == [sent.id]
    place = wait(net, 0, 1, 1, count=64)
    net.run()
    assert (place == 1).all()
    assert_idle(net)


def test_a_message_is_one_datagram_and_its_answer() -> None:
    net = wide()
    place = wait(net, 0, 1, 1, count=64)
    offer(net, 1, 1, 0, values(1))
    net.run()
    assert (place == 1).all()
    assert kinds(net) == {READY_DATA: 1, "READY": 1, "READY_ACK": 1}
    assert [net.done(rank)[1].stats.sent for rank in range(2)] == [0, 1]


def test_a_message_that_missed_its_deadline_does_not_hold_up_the_next() -> None:
    net = wide()
    net.cut.add(0)
    offer(net, 1, 1, 0, values(1), deadline=0.5)
    net.run(until=0.9)
    net.cut.clear()
    (event,) = [e for e in net.events[1] if isinstance(e, MessageWithdrawn)]
    assert (event.ranks, event.number) == ((0,), 1)
    assert "rank(s) 0 to submit message 1" in event.text
    net.sessions[0].abort(1, event.stream, event.number, OperationAborted(event.text), net.now)
    offer(net, 1, 2, 0, values(2))
    place = wait(net, 0, 1, 1, count=64)
    net.run()
    assert (place == 2).all()
    assert_idle(net)


def test_a_message_that_is_kept_is_counted_until_it_is_received() -> None:
    net = wide()
    early = net.sessions[0].flows[1].arrivals.early
    for ticket in (1, 2):
        offer(net, 1, ticket, 0, values(ticket))
    net.run()
    assert early.size == 2 * 256
    wait(net, 0, 1, 1, count=64)
    assert early.size == 256
    wait(net, 0, 2, 1, count=9)  # another size
    assert early.size == 0
    net.run()
    assert net.failed(0)[2].code == "ranks_disagree"
    assert_idle(net)


def test_a_message_that_is_aborted_is_not_kept() -> None:
    net = wide()
    sent = offer(net, 1, 1, 0, values(1))
    net.run()
    early = net.sessions[0].flows[1].arrivals.early
    assert early.size
    stream, _, number = sent.id
    net.sessions[0].abort(1, stream, number, OperationAborted("aborted"), net.now)
    assert not early.size


@pytest.mark.parametrize("world", [2, 3])
def test_a_message_outlives_the_session_of_its_sender(world: int) -> None:
    net = wide(world)
    for ticket in (1, 2):
        offer(net, 1, ticket, 0, values(ticket))
    net.run()
    sender = net.sessions[1]
    assert not list(sender.operations)
    error = SessionClosed("the client ended")
    sender.leave(error)
    net.sessions[0].peer_left(1, sender.departures.begun_with(0), error, net.now)
    net.sessions[0].peer_gone(1, PeerLost("it ended", Peer(1, "host1")), net.now)
    net.cut.add(1)
    net.run()
    places = [wait(net, 0, ticket, 1, count=64) for ticket in (1, 2)]
    net.run()
    assert [int(place[0]) for place in places] == [1, 2]
    wait(net, 0, 3, 1, count=64)
    assert net.sessions[0].broken is not None
    net.run()
    assert net.failed(0)[3].code == "peer_lost"


# --- from a peer that does not keep to the rules -----------------------------------------------


def forged(net: SimNetwork, ready: Ready, number: int = 1) -> bytes:
    """READY with data, from rank 1 to rank 0."""
    header = Header(Kind.READY, net.token(0, 1), number, flags=int(Flag.CARRIES), sent_at=1)
    return datagram(header, ready.pack())


def ready_of(outgoing: int, incoming: int, data: bytes, terms: str = TERMS) -> Ready:
    return Ready(terms, 0, 1408, 0, outgoing, incoming, window=1 << 20, carried=data)


OWED = 4 * COUNT
Forgery = Callable[[SimNetwork], bytes]
FORGERIES: list[tuple[str, Forgery, str]] = [
    ("more than is owed", lambda n: forged(n, ready_of(OWED + 4, OWED, bytes(OWED + 4))), ""),
    ("less than is owed", lambda n: forged(n, ready_of(OWED - 4, OWED, bytes(OWED - 4))), ""),
    ("nothing", lambda n: forged(n, ready_of(0, OWED, b"")), ""),
    ("data of no length", lambda n: forged(n, ready_of(OWED, OWED, b"")), "length"),
    ("data too short", lambda n: forged(n, ready_of(OWED, OWED, bytes(OWED - 1))), "length"),
    ("data too long", lambda n: forged(n, ready_of(OWED, OWED, bytes(OWED + 1))), "length"),
    ("a huge length", lambda n: forged(n, ready_of((1 << 64) - 1, OWED, bytes(9))), "length"),
]


@pytest.mark.parametrize("early", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(
    ("forgery", "reason"), [pytest.param(f, reason, id=name) for name, f, reason in FORGERIES]
)
def test_data_of_another_length_than_is_owed_change_nothing(
    forgery: Forgery, reason: str, early: bool
) -> None:
    net = wide()
    parts = draw("float32", 2, COUNT, 1)
    memory, views = guarded(parts)
    if early:
        net.inject(0, forgery(net))
        net.run(until=1e-3)
    net.submit(0, 1, views[0])
    if not early:
        net.inject(0, forgery(net))
    net.run(until=1e-3)
    assert untouched(memory)
    assert (views[0] == parts[0]).all()
    if reason:
        assert net.counted(reason) == 1
        expected = rank_ordered(parts, "float32", "sum")
        net.submit(1, 1, views[1])
        net.run()
        assert all((view == expected).all() for view in views)
    else:
        assert net.failed(0)[1].code == "ranks_disagree"
        with_memory = net.sessions[0].flows[1].arrivals.early.size
        assert not with_memory
        net.sessions[1].refuse(1, 0, (0, 1), OperationAborted("aborted"))
    reduce(net, 2)
    net.run()
    assert_idle(net)


def test_data_of_an_operation_without_data_change_nothing() -> None:
    net = wide()
    for rank in range(2):
        made = net.operation(
            rank, 1, NONE, output=NONE, program=barrier(rank, 2), terms="barrier", in_place=False
        )
        if rank == 0:
            net.inject(0, forged(net, ready_of(0, 0, b"", "barrier")))
        net.sessions[rank].submit(made, 0, net.now)
    net.run()
    assert all(1 in net.done(rank) for rank in range(2))
    assert_idle(net)


def test_data_of_an_operation_that_failed_change_nothing() -> None:
    net = wide()
    parts = draw("float32", 2, COUNT, 1)
    memory, views = guarded(parts)
    net.submit(0, 1, views[0], deadline=0.1)
    net.run()
    assert net.failed(0)[1].code == "deadline_exceeded"
    net.abort(1, 1, OperationAborted("rank 0 aborted"))
    net.submit(1, 1, views[1])
    net.run()
    assert kinds(net)[READY_DATA]
    assert (views[0] == parts[0]).all()
    assert untouched(memory)
    assert net.failed(1)[1].code == "operation_aborted"
    reduce(net, 2)
    net.run()
    assert_idle(net)


def test_other_data_of_the_same_operation_change_nothing() -> None:
    """Its first READY counts: a later one may be a replay, or the same data again."""
    net = wide()
    parts = draw("float32", 2, COUNT, 1)
    expected = rank_ordered(parts, "float32", "sum")

    net.submit_all(1, parts)
    net.run(until=1.2 * DELAY)
    assert net.open(0, 1).done
    net.inject(0, forged(net, ready_of(OWED, OWED, bytes(OWED))))
    net.run()
    assert all((part == expected).all() for part in parts)
    reduce(net, 2)
    net.run()
    assert_idle(net)


def test_a_rank_outside_an_operation_leaves_no_data_behind() -> None:
    """Rank 2 carries data to rank 0, which does not expect it."""
    net = wide(3)
    for number in (1, 2, 3):
        group_of_two = net.operation(
            0, number, values(1), terms="same", program=barrier(0, 2), deadline=1.0
        )
        net.submit(2, number, values(2), terms="same", deadline=1.0)
        net.run(until=5e-3)
        early = net.sessions[0].flows[2].arrivals.early
        assert early.size == 256
        net.sessions[0].submit(group_of_two, 0, net.now)
        assert net.sessions[0].outcomes.events
        assert not early.size
        net.run()
        assert net.failed(0)[number].code == "ranks_disagree"
