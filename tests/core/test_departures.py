"""Peers leave: operations that need no more of them go on, the others fail."""

import pytest

from dlcpd.contract.errors import PeerLost
from dlcpd.core.session.events import OperationFailed, SessionBroken, Stats
from dlcpd.core.session.session import Session
from dlcpd.core.session.stream_ids import messages
from tests.core.operations import NOW, PlainOperation, begun, session

ENDED = PeerLost("its process ended")


def failed(of: Session) -> list[int]:
    return [e.ticket for e in of.outcomes.take() if isinstance(e, OperationFailed)]


def test_the_operations_that_began_are_named_by_stream() -> None:
    made = session()
    begun(made, 1)
    begun(made, 2)
    begun(made, 3, group=4)
    made.submit_send(PlainOperation(4, frozenset({1})), 0, 1, NOW)
    shared = [(0, 2), (4, 1)]
    assert made.departures.begun_with(1) == [*shared, (messages(0, 0, 1), 1)]
    assert made.departures.begun_with(2) == shared


def test_promised_operations_go_on() -> None:
    made = session()
    first, second = begun(made, 1), begun(made, 2)
    made.peer_left(1, [(0, 1)], ENDED, NOW)
    assert list(made.operations.values()) == [first] and ("closed",) in second.calls
    assert failed(made) == [2]


def test_an_incomplete_list_of_streams_decides_nothing() -> None:
    made = session()
    begun(made)
    made.peer_left(1, [], ENDED, NOW, last=False)
    assert failed(made) == []
    made.peer_left(1, [(0, 1)], ENDED, NOW)
    assert failed(made) == []


@pytest.mark.parametrize("owed", [True, False])
def test_a_peer_that_is_gone_fails_the_operations_that_it_still_owes(owed: bool) -> None:
    made = session()
    operation = begun(made)
    operation.owed = {1} if owed else set()
    made.peer_left(1, [(0, 1)], ENDED, NOW)
    made.peer_gone(1, ENDED, NOW)
    assert failed(made) == ([1] if owed else [])
    assert (("left", 1) in operation.calls) is not owed
    assert (1 in operation.ready_ranks) is not owed


def test_a_done_operation_is_released() -> None:
    made = session()
    operation = begun(made)
    operation.done = True
    made.done(operation, NOW, stats=Stats(), digest=None)
    made.peer_gone(1, ENDED, NOW)
    assert ("left", 1) in operation.calls
    assert made.broken is not None, "it had not announced that it leaves"
    assert not [e for e in made.outcomes.take() if isinstance(e, SessionBroken)]
    made.finished(operation)
    assert [e.rank for e in made.outcomes.take() if isinstance(e, SessionBroken)] == [1]


def test_the_session_goes_on_while_other_peers_are_left() -> None:
    made = session()
    for rank in (1, 2):
        made.peer_left(rank, [(0, 0)], ENDED, NOW)
        assert made.broken is None
        made.peer_gone(rank, ENDED, NOW)
        assert (made.broken is None) is (rank == 1)


def test_an_operation_that_needs_a_peer_that_left_fails_as_it_begins() -> None:
    made = session()
    made.peer_left(1, [(0, 1)], ENDED, NOW)
    begun(made, 1)
    assert failed(made) == []
    begun(made, 2)
    assert failed(made) == [2]


def test_a_receiver_fails_when_no_peer_will_send() -> None:
    made = session()
    made.submit_receive(PlainOperation(1, frozenset()), 0, 1, 0, NOW)
    made.submit_receive(PlainOperation(2, frozenset()), 0, -1, 0, NOW)
    made.peer_left(1, [(messages(0, 1, 0), 0)], ENDED, NOW)
    assert failed(made) == [1]
    made.peer_left(2, [], ENDED, NOW)
    assert failed(made) == [2]
