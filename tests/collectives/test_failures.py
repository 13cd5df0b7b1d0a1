"""P6: no hang. Whatever does not come, every operation ends in time with an error that names it."""

import re
from typing import Any

import numpy as np
import pytest

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcp_lab.simulation.reference import copies, draw, draw_whole, rank_ordered
from dlcpd.contract.errors import (
    DeadlineExceeded,
    OperationAborted,
    Peer,
    PeerLost,
    SessionClosed,
    TooMany,
)
from dlcpd.core.session.events import OperationDone, OperationReleased, SessionBroken
from dlcpd.core.session.rendezvous import MAX_OPEN
from dlcpd.core.session.stream import MAX_AHEAD
from dlcpd.core.session.stream_ids import EVERYBODY
from dlcpd.core.wire.header import Kind


def zeros(count: int = 1000) -> np.ndarray:
    return np.zeros(count, np.float32)


# --- a peer that is gone -------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("world", [2, 4])
def test_a_silent_peer_is_named_within_about_its_timeout(world: int, timeout: float) -> None:
    net = SimNetwork(world, SimLink(delay=2e-3, loss=0.02), peer_timeout=timeout)
    net.submit_all(1, draw("float32", world, 20_000, 1))
    net.run(until=5e-3)  # in the middle of the exchange
    net.cut.add(1)
    begin = net.now
    lost_at: dict[int, float] = {}
    while len(lost_at) < world and net.now < begin + 20:
        net.run(until=0.01)
        net.now += 0.01
        for rank, session in enumerate(net.sessions):
            if session.broken and rank not in lost_at:
                lost_at[rank] = net.now - begin
    for rank in set(range(world)) - {1}:
        code, text = net.sessions[rank].broken or ("", "")
        assert code == "peer_lost"
        assert "rank 1 on host1" in text
        assert "waiting for" in text
        assert timeout * 0.9 <= lost_at[rank] <= timeout * 1.5 + 0.1
        failed = net.failed(rank)[1]
        assert failed.code == "peer_lost"
        assert failed.peer[:2] == (1, "host1")
        assert failed.peer.awaiting in failed.text
        broken = [e for e in net.events[rank] if isinstance(e, SessionBroken)]
        assert [(e.rank, e.code) for e in broken] == [(1, "peer_lost")]


def test_a_silent_peer_is_asked_more_often_than_bursts_of_loss_are_long() -> None:
    """A burst that goes by packets, 8 in the mean, outlasts 20 of them once in 14 times."""
    net = SimNetwork(2)
    net.cut.add(1)
    net.submit(0, 1, zeros())
    net.run()
    asked = re.search(r"\((\d+) pings on 1 paths\)", net.failed(0)[1].text)
    assert asked
    assert 80 <= int(asked[1]) <= 160


def test_a_peer_gone_before_it_ever_spoke_is_named() -> None:
    net = SimNetwork(2)
    net.cut.add(1)
    net.submit(0, 1, zeros())
    net.run()
    assert net.failed(0)[1].code == "peer_lost"
    assert "rank(s) 1 to submit operation 1" in net.failed(0)[1].text


def test_a_broken_session_takes_no_more_operations() -> None:
    net = SimNetwork(2)
    net.sessions[0].fail_all(1, PeerLost("rank 1 died", Peer(1)))
    with pytest.raises(PeerLost, match="rank 1 died") as caught:
        net.submit(0, 1, zeros())
    assert caught.value.rank == 1
    net.sessions[0].fail_all(1, SessionClosed("too late to matter"))
    assert net.sessions[0].broken == ("peer_lost", "rank 1 died")


def test_every_open_operation_fails_with_the_session() -> None:
    net = SimNetwork(2)
    for number in (1, 2, 3):
        net.submit(0, number, zeros())
    net.cut.add(1)
    net.run()
    assert {n: e.code for n, e in net.failed(0).items()} == dict.fromkeys((1, 2, 3), "peer_lost")
    assert not net.sessions[0].operations
    assert net.endpoints[0].next_timeout() is None


def test_a_host_that_slept_does_not_accuse_its_peers() -> None:
    """Our own timers were late: the silence was ours."""
    net = SimNetwork(2)
    net.submit(0, 1, zeros())
    net.run(until=0.3)
    net.now += 10.0
    for endpoint in net.endpoints:
        endpoint.handle_timeout(net.now)
    net.run(until=0.5)
    assert net.sessions[0].broken is None
    net.submit(1, 1, zeros())
    net.run()
    assert 1 in net.done(0)


def test_an_idle_session_does_not_watch_its_peers() -> None:
    net = SimNetwork(2)
    net.submit_all(1, [zeros(), zeros()])
    net.run()
    carried = net.carried
    net.cut.add(1)
    net.run(until=100.0)
    assert net.carried == carried
    assert not any(session.broken for session in net.sessions)


def test_a_slow_peer_that_answers_is_not_lost() -> None:
    net = SimNetwork(2)
    net.submit(0, 1, zeros())
    net.run(until=20.0)
    assert net.sessions[0].broken is None
    net.submit(1, 1, zeros())
    net.run()
    assert 1 in net.done(0)


# --- what never happens --------------------------------------------------------------------


@pytest.mark.parametrize("max_loss", [0.0, 0.3])
def test_a_rank_that_never_submits_is_named_at_the_deadline(max_loss: float) -> None:
    net = SimNetwork(4)
    for rank in (0, 1, 3):
        net.submit(rank, 1, draw_whole(1, 5000, 1)[0], deadline=7.0, max_loss=max_loss, name="n")
    begin = net.now
    net.run()
    for rank in (0, 1, 3):
        failed = net.failed(rank)[1]
        assert failed.code == DeadlineExceeded.code
        assert "operation 1 missed its deadline" in failed.text
        assert "allow more by deadline= of the policy" in failed.text
        assert "rank(s) 2 to submit operation 1" in failed.text
    assert net.now - begin < 7.5


@pytest.mark.parametrize(
    ("mute", "told"),
    [
        ("contribution", "data of rank(s) 1 for operation 1"),
        ("result", "data of rank(s) 1 for operation 1"),
        ("COMPLETE", "rank(s) 1 to take their data of operation 1"),
    ],
)
def test_what_was_waited_for_is_named(mute: str, told: str) -> None:
    net = SimNetwork(3)

    def tamper(source: int, target: int, data: bytes) -> list[bytes]:
        muted = {
            "contribution": net.is_contribution(source, target, data),
            "result": net.is_result(source, target, data),
            "COMPLETE": data[1] == Kind.COMPLETE,
        }
        return [] if source == 1 and muted[mute] else [data]

    net.tamper = tamper
    net.submit_all(1, draw("float32", 3, 3000, 1), deadline=0.4)
    net.run()
    assert told in net.failed(0)[1].text


def test_the_memory_of_a_failed_operation_is_left_alone() -> None:
    net = SimNetwork(2, SimLink(delay=5e-3))
    parts = draw("float32", 2, 5000, 1)
    net.submit_all(1, parts)
    net.run(until=12e-3)
    for rank in range(2):
        net.abort(rank, 1, OperationAborted("enough"))
    before = copies(parts)
    net.run()
    assert all((a == b).all() for a, b in zip(parts, before, strict=True))


def test_operations_after_a_failed_one_are_not_affected() -> None:
    net = SimNetwork(2)
    net.submit(0, 1, zeros(), deadline=0.5)
    net.run()
    assert net.failed(0)[1].code == "deadline_exceeded"
    net.abort(1, 1, OperationAborted("rank 0 aborted"))
    net.submit(1, 1, zeros())
    parts = draw("float32", 2, 5000, 2)
    expected = rank_ordered(parts, "float32", "sum")
    net.submit_all(2, parts)
    net.run()
    assert all((tensor == expected).all() for tensor in parts)
    assert net.failed(1)[1].text == "rank 0 aborted"


def test_what_peers_aborted_fails_as_soon_as_it_is_submitted() -> None:
    net = SimNetwork(2)
    net.abort(1, 1, OperationAborted("rank 0 aborted"))
    begin = net.now
    net.submit(1, 1, zeros(), deadline=60.0)
    net.run()
    assert net.failed(1)[1].code == "operation_aborted"
    assert net.now - begin < 1.0


def test_what_is_aborted_far_ahead_is_not_remembered() -> None:
    net = SimNetwork(2)
    net.abort(1, MAX_AHEAD + 1, OperationAborted("a number from nowhere"))
    net.submit_all(1, [zeros(), zeros()])
    net.run()
    assert 1 in net.done(1)
    assert not net.failed(1)


def test_failing_what_is_over_changes_nothing() -> None:
    net = SimNetwork(2)
    net.submit_all(1, [zeros(), zeros()])
    net.run()
    net.abort(0, 1, OperationAborted("too late"))
    assert not net.failed(0)


# --- ranks that disagree -------------------------------------------------------------------

DIFFERENT: list[tuple[str, dict[str, Any]]] = [
    ("count", {"data": np.zeros(1001, np.float32)}),
    ("dtype", {"data": np.zeros(1000, np.int32), "dtype": "int32"}),
    ("op", {"op": "max"}),
    ("max_loss", {"max_loss": 0.02}),
    ("fill", {"fill": "zero"}),
    ("class", {"traffic_class": 3}),
    ("name or exempt", {"fingerprint": 7}),
]


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0)], ids=str)
@pytest.mark.parametrize(("field", "change"), DIFFERENT, ids=[field for field, _ in DIFFERENT])
def test_every_rank_hears_that_one_submitted_something_else(
    field: str, change: dict[str, Any], order: tuple[int, ...]
) -> None:
    net = SimNetwork(3)
    for rank in order:
        options: dict[str, Any] = {"data": zeros(), "max_loss": 0.01, "name": "n", "deadline": 30.0}
        options |= change if rank == 1 else {}
        net.submit(rank, 1, options.pop("data"), **options)
    begin = net.now
    net.run()
    for rank in range(3):
        failed = net.failed(rank)[1]
        assert failed.code == "ranks_disagree"
        assert "rank 1" in failed.text
        assert not net.done(rank)
    assert net.now - begin < 1.0


def test_the_text_shows_both_sides() -> None:
    net = SimNetwork(2)
    net.submit(0, 1, np.zeros(10, np.float32))
    net.submit(1, 1, np.zeros(12, np.float32))
    net.run()
    text = net.failed(0)[1].text
    assert "rank 1 on host1 submitted sum of float32[12]" in text
    assert "rank 0 here submitted sum of float32[10]" in text


def test_small_contributions_sent_early_do_not_count_when_ranks_disagree() -> None:
    """They travel with READY, before anybody compared anything."""
    net = SimNetwork(2)
    net.submit_all(1, draw("float32", 2, 100, 1))
    net.run()
    one, two = np.ones(100, np.float32), np.ones(100, np.int32)
    net.submit(0, 2, one)
    net.submit(1, 2, two, dtype="int32")
    net.run()
    assert all(net.failed(rank)[2].code == "ranks_disagree" for rank in range(2))
    assert (one == 1).all()
    assert (two == 1).all()


# --- bounds ----------------------------------------------------------------------------------


def test_too_many_operations_in_flight_are_refused() -> None:
    net = SimNetwork(2)
    for number in range(1, MAX_OPEN + 1):
        net.submit(0, number, zeros(1))
    with pytest.raises(TooMany):
        net.submit(0, MAX_OPEN + 1, zeros(1))
    assert len(net.sessions[0].operations) == MAX_OPEN


def test_a_peer_far_ahead_is_not_told_that_it_was_understood() -> None:
    """Else it would never say again what could not be remembered."""
    net = SimNetwork(2)
    far = MAX_AHEAD + 1
    part, other = draw("float32", 2, 500, 1)
    expected = rank_ordered([part, other], "float32", "sum")
    for rank, begun in ((0, far - 1), (1, 0)):
        net.sessions[rank].streams.open(0, EVERYBODY).begun = begun  # as if they had been submitted
    net.submit(0, far, part)
    net.run(until=1.0)
    net.sessions[1].streams.open(0, EVERYBODY).begun = far - 1
    net.submit(1, far, other)
    net.run()
    assert (part == expected).all()
    assert (other == expected).all()


@pytest.mark.parametrize("seed", range(10))
def test_a_lossy_network_is_no_dead_peer(seed: int) -> None:
    """Two ranks have nothing to tell each other for long, and lose a fifth of their pings."""
    net = SimNetwork(3, SimLink(loss=0.2), seed=seed)
    parts = draw("float32", 3, 1000, 1)
    expected = rank_ordered(parts, "float32", "sum")
    for rank in (0, 1):
        net.submit(rank, 1, parts[rank])
    net.run(until=20.0)
    net.submit(2, 1, parts[2])
    net.run()
    assert all((part == expected).all() for part in parts)


# --- ends of an operation ----------------------------------------------------------------------


def test_without_in_place_the_result_comes_before_the_release() -> None:
    net = SimNetwork(3, SimLink(loss=0.05, jitter=40e-6), seed=2)
    parts = draw("float32", 3, 9000, 1)
    expected = rank_ordered(parts, "float32", "sum")
    net.submit_all(1, parts, in_place=False)
    net.run()
    order = []
    for rank in range(3):
        kinds = [type(e).__name__ for e in net.events[rank]]
        released = net.done(rank)[1].released
        assert kinds == ["OperationDone"] + ([] if released else ["OperationReleased"])
        order.append(released)
        assert (parts[rank] == expected).all()
    assert not all(order)


def test_a_release_that_never_comes_is_given_by_the_deadline() -> None:
    """Who has its result has not failed, whatever became of the others."""
    net = SimNetwork(2, tamper=lambda _s, _t, data: [] if data[1] == Kind.COMPLETE else [data])
    net.submit_all(1, draw("float32", 2, 9000, 1), in_place=False, deadline=2.0)
    net.run()
    assert [type(e) for e in net.events[0]] == [OperationDone, OperationReleased]


# --- sessions ----------------------------------------------------------------------------------


def test_a_closed_session_leaves_nothing_behind() -> None:
    net = SimNetwork(2, SimLink(delay=2e-3))
    net.submit_all(1, draw("float32", 2, 20_000, 1))
    net.run(until=5e-3)
    net.endpoints[0].close_session(1)
    assert net.endpoints[0].next_timeout() is None
    assert not net.endpoints[0].flows
    net.run()  # what still arrives is a stranger's
    assert net.endpoints[0].counters["token"]
    assert net.failed(1)[1].code == "peer_lost"


def test_sessions_of_one_engine_do_not_touch_each_other() -> None:
    net = SimNetwork(2, SimLink(delay=2e-3))
    parts = draw("float32", 2, 20_000, 1)
    expected = rank_ordered(parts, "float32", "sum")
    net.submit_all(1, parts)
    net.run(until=5e-3)
    net.life = 7  # other tokens
    for rank in range(2):
        net.open_session(rank, 2)
        net.endpoints[rank].close_session(2)
    net.run()
    assert all((tensor == expected).all() for tensor in parts)
