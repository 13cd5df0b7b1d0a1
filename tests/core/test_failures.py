"""Operations end without a result: one, those of a group, all of a session."""

from dlcpd.contract.errors import NOBODY, OperationAborted, Peer, PeerLost, SessionClosed
from dlcpd.core.session.events import OperationFailed, OperationReleased, SessionBroken, Stats
from dlcpd.core.session.session import Session
from dlcpd.core.timers import Timer
from tests.core.operations import NOW, PlainOperation, begun, session


def failed(of: Session) -> dict[int, str]:
    """Codes by ticket."""
    return {e.ticket: e.code for e in of.outcomes.take() if isinstance(e, OperationFailed)}


def finish(of: Session, operation: PlainOperation) -> None:
    operation.done = True
    of.done(operation, NOW, stats=Stats(), digest=None)


def test_a_failed_operation_leaves_nothing_behind() -> None:
    made = session()
    operation = begun(made)
    made.fail(operation, OperationAborted("no"))
    assert operation.calls[-1] == ("closed",)
    assert not made.operations
    assert not made.timers.pending((made, Timer.DEADLINE, operation))
    assert not made.timers.pending((made, Timer.READY, 1)), "its READY is not repeated"
    assert made.streams[0, -1].refusal(1) == "failed"


def test_an_error_about_a_peer_names_what_waits_for_it() -> None:
    made = session()
    operation = begun(made)
    made.fail(operation, PeerLost("rank 1 is silent", Peer(1, "host1")))
    [event] = made.outcomes.take()
    assert isinstance(event, OperationFailed)
    assert event.peer == Peer(1, "host1", "", operation.awaited()[1])


def test_a_done_operation_is_released_and_not_failed() -> None:
    made = session()
    operation = begun(made)
    finish(made, operation)
    made.outcomes.take()
    made.fail(operation, OperationAborted("a peer aborted it"))
    assert made.outcomes.take() == [OperationReleased(7, operation.ticket)]
    assert not made.operations


def test_a_group_fails_alone_and_without_its_done_operations() -> None:
    made = session()
    first, second, other = begun(made, 1, 3), begun(made, 2, 3), begun(made, 3, 4)
    made.submit_receive(PlainOperation(4, frozenset()), 3, 1, 0, NOW)
    made.submit_receive(PlainOperation(5, frozenset()), 4, 1, 0, NOW)
    finish(made, first)
    made.fail_group(3, SessionClosed("group 3 was closed"))
    assert failed(made) == {2: "session_closed", 4: "session_closed"}
    assert (
        set(made.operations.values()) == {first, other} and second not in made.operations.values()
    )
    assert [wanted.receiver.ticket for wanted in made.mailbox.receivers] == [5]


def test_the_first_reason_breaks_the_session() -> None:
    made = session()
    begun(made)
    made.submit_receive(PlainOperation(2, frozenset()), 0, 1, 0, NOW)
    made.fail_all(1, PeerLost("rank 1 is silent"))
    events = made.outcomes.take()
    assert [type(event) for event in events] == [OperationFailed, OperationFailed, SessionBroken]
    made.fail_all(2, PeerLost("rank 2 is silent"))
    assert made.broken == ("peer_lost", "rank 1 is silent")
    assert made.outcomes.take() == []


def test_leaving_keeps_done_operations_and_the_end_does_not() -> None:
    made = session()
    first, second = begun(made, 1), begun(made, 2)
    finish(made, first)
    made.leave(SessionClosed("the client has gone"))
    assert failed(made) == {2: "session_closed"}
    assert list(made.operations.values()) == [first] and ("closed",) in second.calls
    made.end(SessionClosed("the delivery is over"))
    assert not made.operations


def test_a_deadline_names_what_is_missing() -> None:
    made = session()
    begun(made)
    receiver = PlainOperation(2, frozenset())
    made.submit_receive(receiver, 0, 1, 0, NOW)
    for operation in [*made.operations.values(), receiver]:
        made.handle_timer(Timer.DEADLINE, operation, NOW + 60.0)
    first, second = made.outcomes.take()
    assert isinstance(first, OperationFailed) and isinstance(second, OperationFailed)
    assert first.text.startswith("operation 1 missed its deadline; waiting for operation 1 of")
    assert (second.ticket, second.code, second.peer) == (2, "deadline_exceeded", NOBODY)
    assert not made.mailbox.receivers and receiver.calls == [("closed",)]
