"""When a silent peer is asked, how often, and when it is lost."""

import pytest

from dlcpd.core.session.flow import Flow
from dlcpd.core.session.liveness import ALIKE_PINGS, PINGS_BEFORE_LOST, Liveness
from dlcpd.core.wire.header import Header, Kind
from tests.sim.network import SimNetwork

TIMEOUT = 2.0
RULES = Liveness(TIMEOUT)


def flow(*, paths: int = 1, heard_at: float = 100.0) -> Flow:
    """Towards a peer that was heard at that time."""
    made = SimNetwork(2, paths=paths).sessions[0].flows[1]
    made.heard(heard_at)
    return made


def pings(asked: Flow) -> int:
    """Those that wait to go out; they are taken away."""
    waiting, asked.outbox.waiting = asked.outbox.waiting, []
    return [Header.unpack_untrusted(c.data).kind for c in waiting].count(Kind.PING)


@pytest.mark.parametrize(
    ("silent", "unanswered", "lost"),
    [
        (TIMEOUT, PINGS_BEFORE_LOST, True),
        (TIMEOUT - 1e-6, PINGS_BEFORE_LOST, False),  # it still has time
        (10 * TIMEOUT, PINGS_BEFORE_LOST - 1, False),  # it was not asked often enough: we slept
        (10 * TIMEOUT, 10 * PINGS_BEFORE_LOST, True),
    ],
)
def test_a_peer_is_lost_after_time_and_pings(silent: float, unanswered: int, lost: bool) -> None:
    peer = flow()
    peer.unanswered = unanswered
    assert RULES.is_lost(peer, 100.0 + silent) is lost


def test_an_answer_begins_it_anew() -> None:
    peer = flow()
    peer.unanswered = PINGS_BEFORE_LOST
    peer.heard(100.0 + TIMEOUT)
    assert not RULES.is_lost(peer, 100.0 + TIMEOUT)
    assert not peer.unanswered


def test_a_peer_heard_lately_is_not_asked() -> None:
    peer = flow()
    assert RULES.look(peer, 100.1) == pytest.approx(100.1 + RULES.interval)
    assert not pings(peer)


def test_a_peer_that_is_quiet_is_asked() -> None:
    peer = flow()
    RULES.look(peer, 100.0 + RULES.interval)
    assert pings(peer) == 1
    assert peer.unanswered == 1


def test_it_is_asked_ever_more_often_and_enough_before_it_is_lost() -> None:
    peer, now, waits = flow(), 100.0, list[float]()
    while not RULES.is_lost(peer, now):
        later = RULES.look(peer, now)
        waits.append(later - now)
        now = later
        assert len(waits) < 1000
    assert TIMEOUT <= now - 100.0 <= 1.1 * TIMEOUT
    assert waits == sorted(waits, reverse=True)
    assert peer.unanswered > 3 * PINGS_BEFORE_LOST
    assert peer.unanswered < 200
    assert pings(peer) == peer.unanswered
    alike = [wait for wait in waits if wait == pytest.approx(TIMEOUT / (2 * PINGS_BEFORE_LOST))]
    assert len(alike) == ALIKE_PINGS - 1  # the first ping went out at an ordinary look


def test_a_peer_that_owes_an_answer_is_looked_after_sooner() -> None:
    peer = flow()
    space = peer.paths.space(0, 4)
    space.sent += 3  # in flight
    soon = RULES.look(peer, 100.001)
    assert soon - 100.001 <= 2 * peer.paths.timeout(0)
    assert soon - 100.001 < RULES.interval


def test_a_loss_says_whom_where_and_what_waits() -> None:
    peer = flow()
    peer.address = "10.0.0.7:4040"
    error = RULES.loss(peer, ["one", "two", "three", "four"], 100.0 + TIMEOUT)
    assert error.peer == (1, "host1", "10.0.0.7:4040", "one; two; three")


def test_every_path_is_asked() -> None:
    peer = flow(paths=3)
    RULES.look(peer, 100.0 + RULES.interval)
    assert pings(peer) >= 3
