"""Silent peers are pinged, suspected and lost, for as long as operations wait for them."""

from dlcpd.contract.errors import PeerLost
from dlcpd.core.session.events import OperationFailed, PeerNews, PeerState, SessionBroken
from dlcpd.core.session.session import Session
from dlcpd.core.timers import Timer
from dlcpd.core.wire.header import Header, Kind
from tests.core.operations import NOW, PlainOperation, begun, session


def pings(of: Session, rank: int) -> int:
    """PINGs that wait to go out; all control is taken away."""
    outbox = of.flows[rank].outbox
    waiting, outbox.waiting = outbox.waiting, []
    return [Header.unpack_untrusted(each.data).kind for each in waiting].count(Kind.PING)


def run(of: Session, until: float) -> None:
    """Let the checks of peers expire."""
    while (at := of.timers.next_timeout()) is not None and at <= until:
        for key in of.timers.pop_due(at):
            assert isinstance(key, tuple)
            _, timer, subject = key
            of.handle_timer(timer, subject, at)


def test_a_peer_is_checked_from_the_time_that_an_operation_waits() -> None:
    made = session()
    assert not made.timers.pending((made, Timer.ALIVE, 1))
    begun(made)
    assert all(made.timers.pending((made, Timer.ALIVE, rank)) for rank in (1, 2))
    assert made.flows[1].heard_at == NOW, "silence before does not count"


def test_a_receiver_of_any_message_waits_for_all_peers() -> None:
    made = session()
    made.submit_receive(PlainOperation(1, frozenset()), 0, -1, 0, NOW)
    assert all(made.timers.pending((made, Timer.ALIVE, rank)) for rank in (1, 2))


def test_silence_is_reported_and_breaks_the_session_in_the_end() -> None:
    made = session()
    begun(made)
    while made.broken is None:
        at = made.timers.next_timeout()
        assert at is not None and at < NOW + 3.0
        if at > made.flows[2].heard_at:
            made.flows[2].heard(at)
        run(made, at)
    events = made.outcomes.take()
    suspected = [event for event in events if isinstance(event, PeerNews)]
    assert [(e.rank, e.state) for e in suspected] == [(1, PeerState.SUSPECTED)]
    [failed] = [event for event in events if isinstance(event, OperationFailed)]
    assert "rank 1 on host1 has not answered for 2." in failed.text
    assert isinstance(events[-1], SessionBroken) and events[-1].rank == 1


def test_no_operation_waits_no_check() -> None:
    made = session()
    operation = begun(made)
    made.finished(operation)
    pings(made, 1)
    run(made, NOW + 10.0)
    assert pings(made, 1) == 0 and made.broken is None
    assert made.timers.next_timeout() is None


def test_a_peer_that_has_left_is_not_checked() -> None:
    made = session()
    begun(made)
    made.peer_left(1, [(0, 1)], PeerLost("rank 1 ended"), NOW)
    made.peer_gone(1, PeerLost("rank 1 ended"), NOW)
    assert made.operations and made.broken is None
    made.timers.cancel((made, Timer.ALIVE, 1))
    pings(made, 1)
    made.detector.check(made.flows[1], NOW + 10.0)
    assert pings(made, 1) == 0 and made.broken is None
    assert not made.timers.pending((made, Timer.ALIVE, 1))


def test_a_sign_has_an_awaited_peer_pinged_at_once() -> None:
    made = session()
    made.detector.doubt(1, "its port is closed", NOW)
    assert not made.flows[1].sign, "no operation waits for it"
    begun(made)
    made.detector.doubt(1, "its port is closed", NOW)
    made.detector.doubt(9, "its port is closed", NOW)
    pings(made, 1)
    run(made, NOW)
    assert pings(made, 1) == 1 and pings(made, 2) == 0


def test_sleep_of_this_process_is_no_silence_of_its_peers() -> None:
    made = session()
    begun(made)
    made.detector.excuse(30.0, NOW + 30.0)
    assert [flow.heard_at for flow in made.flows.values()] == [NOW + 30.0] * 2
