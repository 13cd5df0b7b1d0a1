"""When a silent peer is asked, how often, and when it is lost."""

import pytest

from dlcp_lab.simulation.network import SimNetwork
from dlcpd.core.session.events import PeerState
from dlcpd.core.session.flow import Flow
from dlcpd.core.session.liveness import (
    ALIKE_PINGS,
    PINGS_BEFORE_LOST,
    PINGS_BEFORE_SUSPECTED,
    PROOF,
    PROOF_PINGS,
    Liveness,
)
from dlcpd.core.session.suspicions import Suspicions
from dlcpd.core.wire.header import Header, Kind

TIMEOUT = 2.0
RULES = Liveness(TIMEOUT, TIMEOUT)
PATIENT = Liveness(30.0, 1.0)


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
    assert RULES.check(peer, 100.1) == pytest.approx(100.1 + RULES.interval)
    assert not pings(peer)


def test_a_peer_that_is_quiet_is_asked() -> None:
    peer = flow()
    RULES.check(peer, 100.0 + RULES.interval)
    assert pings(peer) == 1
    assert peer.unanswered == 1


def test_it_is_asked_ever_more_often_and_enough_before_it_is_lost() -> None:
    peer, now, waits = flow(), 100.0, list[float]()
    while not RULES.is_lost(peer, now):
        later = RULES.check(peer, now)
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
    soon = RULES.check(peer, 100.001)
    assert soon - 100.001 <= 2 * peer.paths.timeout(0)
    assert soon - 100.001 < RULES.interval


def test_a_loss_says_whom_where_and_what_waits() -> None:
    peer = flow()
    peer.address = "10.0.0.7:4040"
    error = RULES.loss(peer, ["one", "two", "three", "four"], 100.0 + TIMEOUT)
    assert error.peer == (1, "host1", "10.0.0.7:4040", "one; two; three")


def test_every_path_is_asked() -> None:
    peer = flow(paths=3)
    RULES.check(peer, 100.0 + RULES.interval)
    assert pings(peer) >= 3


# --- suspicion ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("silent", "unanswered", "suspect"),
    [
        (1.0, PINGS_BEFORE_SUSPECTED, True),
        (0.99, 100, False),
        (100.0, PINGS_BEFORE_SUSPECTED - 1, False),  # it was not asked: nothing is known
    ],
)
def test_a_peer_is_suspected_after_time_and_pings(
    silent: float, unanswered: int, suspect: bool
) -> None:
    peer = flow()
    peer.unanswered = unanswered
    assert PATIENT.is_suspect(peer, 100.0 + silent) is suspect


def test_a_suspected_peer_is_asked_at_an_even_pace_until_it_is_lost() -> None:
    peer, now, looks = flow(), 100.0, 0
    while not PATIENT.is_lost(peer, now):
        now, looks = PATIENT.check(peer, now), looks + 1
    assert 30.0 <= now - 100.0 <= 30.5
    assert looks < 300
    assert now - 100.0 < PATIENT.peer_timeout + PATIENT.interval + 1e-6


def test_a_suspicion_and_its_end_are_told_once_each() -> None:
    peer, suspicions = flow(), Suspicions(7)
    peer.unanswered = PINGS_BEFORE_SUSPECTED
    assert suspicions.check(peer, PATIENT, 100.5) is None
    told = [suspicions.check(peer, PATIENT, 101.0 + n) for n in range(5)]
    assert told[0] == (7, 1, PeerState.SUSPECTED, 1.0)
    assert told[1:] == [None] * 4
    peer.heard(110.0)
    told = [suspicions.check(peer, PATIENT, 110.0 + n) for n in range(2)]
    assert told == [(7, 1, PeerState.HEARD, 10.0), None]


def test_a_suspicion_ends_when_nothing_waits_for_the_peer() -> None:
    peer, suspicions = flow(), Suspicions(7)
    peer.unanswered = PINGS_BEFORE_SUSPECTED
    suspicions.check(peer, PATIENT, 102.0)
    assert suspicions.end(peer, 103.0) == (7, 1, PeerState.AWAITED_NO_MORE, 3.0)
    assert suspicions.end(peer, 104.0) is None
    assert not peer.suspected


# --- signs of death -------------------------------------------------------------------------


def ask(peer: Flow, rules: Liveness, now: float) -> float:
    """Until it is lost, or a minute has passed; returns when."""
    end = now + 60.0
    while now < end and not rules.is_lost(peer, now):
        now = rules.check(peer, now)
    return now


def test_a_peer_with_a_sign_of_death_is_lost_within_a_second() -> None:
    peer = flow()
    peer.doubt("its port is closed", 100.0)
    lost = ask(peer, PATIENT, 100.0)
    assert PROOF <= lost - 100.0 < 1.0
    assert pings(peer) >= PROOF_PINGS
    error = PATIENT.loss(peer, ["one"], lost)
    assert "its port is closed" in str(error)


def test_a_sign_alone_ends_nothing_while_pings_are_answered() -> None:
    """Anybody may forge one, as often as he likes."""
    peer, now = flow(), 100.0
    while now < 160.0:
        assert peer.doubt("its port is closed", now)
        for _ in range(PROOF_PINGS - 1):
            now = PATIENT.check(peer, now)
        peer.heard(now)
        assert not PATIENT.is_lost(peer, now)


def test_pings_from_before_a_sign_prove_nothing() -> None:
    """A paused host leaves pings unanswered; a forged sign must not end it at once."""
    peer = flow()
    peer.unanswered = 100
    assert peer.doubt("its port is closed", 110.0)
    assert not PATIENT.is_lost(peer, 110.0)
    assert not peer.doubt("its port is closed", 110.3)  # a second one does not put it off
    assert ask(peer, PATIENT, 110.0) - 110.0 >= PROOF


# --- this host's own silence ------------------------------------------------------------------


def test_silence_counts_only_while_this_host_was_given_time() -> None:
    peer = flow()
    peer.unanswered = 100
    peer.excuse(25.0, 130.0)
    assert not PATIENT.is_lost(peer, 130.0)
    assert PATIENT.is_lost(peer, 155.0)


def test_an_excuse_does_not_reach_into_the_future() -> None:
    peer = flow()
    peer.excuse(50.0, 120.0)
    assert peer.heard_at == 120.0


def test_proof_of_death_takes_time_in_which_this_host_runs() -> None:
    peer = flow()
    peer.doubt("its port is closed", 105.0)
    peer.unanswered = PROOF_PINGS
    peer.excuse(3.0, 108.1)
    assert not PATIENT.is_lost(peer, 108.1)
    assert PATIENT.is_lost(peer, 109.0)


def test_proof_of_death_takes_pings_that_stay_unanswered() -> None:
    peer = flow()
    peer.doubt("its port is closed", 100.0)
    peer.unanswered = PROOF_PINGS - 1
    assert not PATIENT.is_lost(peer, 110.0)
