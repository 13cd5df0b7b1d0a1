"""READYs of this rank and of its peers are matched, in whichever order they come."""

import pytest

from dlcpd.contract.errors import OperationAborted, PeerLost, TooMany
from dlcpd.core.session import rendezvous
from dlcpd.core.session.events import OperationFailed
from dlcpd.core.session.mailbox import ANY
from dlcpd.core.session.session import Session
from dlcpd.core.session.stream_ids import EVERYBODY, messages
from dlcpd.core.timers import Timer
from dlcpd.core.wire.control import Ready
from dlcpd.core.wire.header import Header, Kind
from tests.core.operations import NOW, SEGMENT, TEXT, PlainOperation, begun, hear, sender, session


def failures(of: Session) -> list[OperationFailed]:
    return [event for event in of.outcomes.take() if isinstance(event, OperationFailed)]


@pytest.mark.parametrize("ahead", [True, False], ids=["peers first", "this rank first"])
def test_an_operation_meets_its_peers_in_any_order(ahead: bool) -> None:
    made = session()
    if ahead:
        hear(made, 1, 1)
        hear(made, 2, 1)
    operation = begun(made)
    if not ahead:
        hear(made, 1, 1)
        hear(made, 2, 1)
    assert operation.calls == [("start", 7, NOW), ("ready", 1, False), ("ready", 2, False)]
    assert operation.id == (0, EVERYBODY, 1)


def test_ready_goes_to_every_peer_before_a_failure() -> None:
    made = session()
    hear(made, 1, 1, "max of int8[1]")
    operation = begun(made)
    kinds = {
        rank: [Header.unpack_untrusted(c.data).kind for c in flow.outbox.waiting]
        for rank, flow in made.flows.items()
    }
    assert kinds == {1: [Kind.READY], 2: [Kind.READY]}
    [failed] = failures(made)
    assert (failed.ticket, failed.ranks) == (operation.ticket, (1, 2))
    assert failed.code == "ranks_disagree"
    assert "max of int8[1]" in failed.text and TEXT in failed.text and "host1" in failed.text


def test_a_rank_that_is_no_member_fails_the_operation() -> None:
    made = session()
    made.submit(PlainOperation(1, frozenset({1})), 0, NOW)
    hear(made, 2, 1)
    [failed] = failures(made)
    assert failed.code == "ranks_disagree" and "rank 2 on host2 takes part" in failed.text


def test_an_operation_that_a_peer_aborted_before_it_began_here_fails_as_it_begins() -> None:
    made = session()
    made.abort(2, 0, 1, OperationAborted("rank 2: no"), NOW)
    operation = begun(made)
    assert [event.text for event in failures(made)] == ["rank 2: no"]
    assert not made.operations and ("closed",) in operation.calls
    assert begun(made, 2).id == (0, EVERYBODY, 2)


def test_a_ready_ack_ends_the_repetition() -> None:
    made = session()
    operation = begun(made)
    assert made.timers.pending((made, Timer.READY, 1))
    made.rendezvous.on_ready_ack(made.flows[1], Header(Kind.READY_ACK, 1, 1, 0), NOW)
    assert operation.calls[-1] == ("known", 1)
    assert not made.timers.pending((made, Timer.READY, 1))
    assert made.timers.pending((made, Timer.READY, 2))


def test_a_ready_ack_asks_at_once_for_the_data_that_came_before_the_ready() -> None:
    made = session()
    begun(made)
    flow, sent = made.flows[1], sender(1)
    flow.outgoing.add(sent)
    sent.take(1, 0)
    flow.outbox.waiting.clear()
    ack = Header(Kind.READY_ACK, 1, 1, 0)
    for told in ([Kind.END], [Kind.END]):  # a replayed one asks for nothing
        made.rendezvous.on_ready_ack(flow, ack, NOW)
        assert [Header.unpack_untrusted(c.data).kind for c in flow.outbox.waiting] == told


@pytest.mark.parametrize("attempt", [0, 1])
def test_a_ready_that_was_repeated_is_acknowledged_though_it_is_the_first_to_come(
    attempt: int,
) -> None:
    made = session()
    begun(made)
    hear(made, 1, 1, attempt=attempt)
    assert bool(made.flows[1].outbox.heard_ready) is bool(attempt)


@pytest.mark.parametrize("rank", [1, ANY])
@pytest.mark.parametrize("ahead", [True, False], ids=["message first", "receiver first"])
def test_a_receiver_gets_the_message_of_its_tag(rank: int, ahead: bool) -> None:
    made, stream = session(), messages(0, 1, 0)
    receiver = PlainOperation(5, frozenset(), tag=9)
    if not ahead:
        made.submit_receive(receiver, 0, rank, 9, NOW)
    hear(made, 1, 1, stream=stream, tag=8)
    hear(made, 1, 2, stream=stream, tag=9)
    if ahead:
        made.submit_receive(receiver, 0, rank, 9, NOW)
    assert receiver.id == (stream, 1, 2) and receiver.peers == {1}
    assert ("ready", 1, False) in receiver.calls
    assert [message.tag for message in made.mailbox.messages] == [8]


def test_a_message_that_was_withdrawn_uses_up_its_number() -> None:
    made, stream = session(), messages(0, 1, 0)
    hear(made, 1, 2, stream=stream, tag=9)
    receiver = PlainOperation(5, frozenset(), tag=9)
    made.submit_receive(receiver, 0, 1, 9, NOW)
    assert not made.operations, "the first message has yet to come"
    made.abort(1, stream, 1, OperationAborted("rank 1: no"), NOW)
    assert receiver.id == (stream, 1, 2)


def test_a_session_has_room_for_so_many_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "MAX_OPEN", 2)
    made = session()
    begun(made)
    made.submit_receive(PlainOperation(2, frozenset()), 0, 1, 0, NOW)
    with pytest.raises(TooMany):
        begun(made, 3)
    assert made.begun == 1
    made.fail_all(1, PeerLost("rank 1 is silent"))
    with pytest.raises(PeerLost):
        begun(made, 4)


# --- READYs with data ----------------------------------------------------------------------------


@pytest.mark.parametrize("carried", [b"", None])
def test_the_first_ready_with_data_shows_that_the_peer_lives(carried: bytes | None) -> None:
    made = session()
    operation = begun(made)
    flow = made.flows[1]
    flow.heard_at = 0.0
    hear(made, 1, 1, carried=carried)
    assert (flow.heard_at == NOW) is (carried is not None)
    assert (("carried", 1, b"") in operation.calls) is (carried is not None)
    flow.heard_at = 0.0
    hear(made, 1, 1, carried=carried)  # a replay
    assert flow.heard_at == 0.0
    assert operation.calls.count(("carried", 1, b"")) == (carried is not None)


def test_a_ready_that_was_kept_does_not_show_that_the_peer_lives_now() -> None:
    made = session()
    begun(made)  # from now on the peers are watched
    flow = made.flows[1]
    flow.heard_at = 0.0
    hear(made, 1, 2, carried=b"")
    assert flow.heard_at == NOW
    flow.heard_at = 0.0
    hear(made, 1, 2, carried=b"")
    operation = begun(made, 2)
    assert ("carried", 1, b"") in operation.calls
    assert flow.heard_at == 0.0


def test_a_ready_whose_data_have_no_room_is_forgotten_and_not_answered() -> None:
    made = session()
    flow = made.flows[1]
    flow.arrivals.early.limit = 10
    hear(made, 1, 1, carried=bytes(11))
    assert not flow.outbox.heard_ready
    assert not made.streams[0, -1].announced.get(1)
    hear(made, 1, 1, carried=bytes(10))
    assert flow.outbox.heard_ready == {(0, 1)}
    hear(made, 1, 2)  # without data it needs no room
    assert flow.outbox.heard_ready == {(0, 1), (0, 2)}


def test_a_rank_that_is_no_member_leaves_no_ready_and_no_data_behind() -> None:
    made = session()
    hear(made, 2, 1, carried=bytes(10))
    assert made.flows[2].arrivals.early.size == 10
    made.submit(PlainOperation(1, frozenset({1})), 0, NOW)
    assert made.flows[2].arrivals.early.size == 0
    assert not made.streams[0, -1].held[2]
    (failed,) = failures(made)
    assert failed.code == "ranks_disagree"


def test_a_ready_of_a_later_operation_shows_that_the_peer_has_that_of_an_earlier_one() -> None:
    made = session()
    operation = begun(made)
    ready = Ready(TEXT, 0, SEGMENT, checked=1)
    made.rendezvous.on_ready(made.flows[1], Header(Kind.READY, 1, 2, 0), ready.pack(), NOW)
    assert ("known", 1) in operation.calls
    assert not made.timers.pending((made, Timer.READY, 1))
    assert made.timers.pending((made, Timer.READY, 2))


class EndsWithReady(PlainOperation):
    """Ends as the READY of a peer comes."""

    def on_peer_ready(self, rank: int, ready: Ready, now: float, *, late: bool) -> None:
        super().on_peer_ready(rank, ready, now, late=late)
        self.owner.finished(self)

    def start(self, session: Session, now: float) -> None:
        super().start(session, now)
        self.owner = session


def test_an_operation_that_ended_gets_no_data() -> None:
    made = session()
    operation = EndsWithReady(1, frozenset(made.flows))
    made.submit(operation, 0, NOW)
    hear(made, 1, 1, carried=b"")
    assert operation.calls[-2:] == [("ready", 1, False), ("closed",)]
