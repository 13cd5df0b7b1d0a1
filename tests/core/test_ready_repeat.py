"""READY is told on every path, and again until the peer is known to have it."""

import pytest

from dlcp_lab.simulation.network import SimNetwork
from dlcpd.core.paths.rtt import MIN_RTO
from dlcpd.core.session.flow import Flow
from dlcpd.core.session.ready_repeat import (
    APART,
    MOST_AGAIN,
    MOST_CARRIED,
    PendingReady,
    ReadyRepeater,
)
from dlcpd.core.session.stream_ids import EVERYBODY, OperationId
from dlcpd.core.timers import Timer, TimerTable
from dlcpd.core.wire.control import Ready, body_untrusted, unpack_ready_untrusted
from dlcpd.core.wire.header import MAX_ROUND, Flag, Header, Key, Kind

READY = Ready("sum of float32[9]", 42, 128, outgoing=7, incoming=8)
OPERATION = (3, EVERYBODY, 5)
OWNER = "session"
TIMER = (OWNER, Timer.READY, 1)


def pending(*, late: bool = False) -> PendingReady:
    return PendingReady(READY, checked=4, digest=0xD1, late=late)


def begun(*, paths: int = 1, late: bool = False) -> tuple[ReadyRepeater, Flow]:
    """An operation that its peer has just been told of, at time 10."""
    flow = SimNetwork(2, paths=paths).sessions[0].flows[1]
    flow.opening = 4096
    repeater = ReadyRepeater(OWNER, TimerTable())
    repeater.send(flow, OPERATION, pending(late=late), 10.0)
    return repeater, flow


def told(flow: Flow) -> list[tuple[int, Header, Ready]]:
    """(path, header, READY) of what waits to go out; it is taken away."""
    waiting, flow.outbox.waiting = flow.outbox.waiting, []
    headers = [Header.unpack_untrusted(c.data) for c in waiting]
    bodies = [
        unpack_ready_untrusted(body_untrusted(c.data), carries=bool(header.flags & Flag.CARRIES))
        for c, header in zip(waiting, headers, strict=True)
    ]
    return list(zip([c.path for c in waiting], headers, bodies, strict=True))


def test_it_says_what_was_submitted_and_what_goes_along() -> None:
    _, flow = begun()
    ((_, header, ready),) = told(flow)
    assert (header.kind, header.stream, header.operation) == (Kind.READY, 3, 5)
    assert (header.token, header.round, header.flags) == (flow.token_out, 0, 0)
    assert ready == READY.told(window=4096, checked=4, digest=0xD1)


def test_it_goes_out_on_every_path() -> None:
    _, flow = begun(paths=3)
    assert sorted(path for path, _, _ in told(flow)) == [0, 1, 2]


@pytest.mark.parametrize("late", [True, False])
def test_it_says_whether_data_came_too_early(late: bool) -> None:
    _, flow = begun(late=late)
    ((_, header, _),) = told(flow)
    assert bool(header.flags & Flag.LATE) is late


def test_what_it_says_of_an_earlier_operation_need_not_be_said_again() -> None:
    flow = SimNetwork(2).sessions[0].flows[1]
    flow.outbox.complete += [Key(3, 4, 0), Key(3, 3, 0), Key(0, 4, 0)]
    ReadyRepeater(OWNER, TimerTable()).send(flow, OPERATION, pending(), 10.0)
    assert flow.outbox.complete == [Key(3, 3, 0), Key(0, 4, 0)]


def test_it_is_repeated_ever_more_rarely_until_it_is_known() -> None:
    repeater, flow = begun()
    told(flow)
    now, waits = 10.0, list[float]()
    for attempt in range(1, MAX_ROUND + 10):
        at = repeater.timers.next_timeout()
        assert at is not None
        waits.append(at - now)
        now = at
        assert repeater.timers.pop_due(now) == [TIMER]
        repeater.repeat(flow, now)
        ((_, header, ready),) = told(flow)
        assert header.round == min(attempt, MAX_ROUND)  # so that the repetition is answered
        assert ready == READY.told(4096, 4, 0xD1)
    assert waits[0] == pytest.approx(waits[1]) and waits[1] < waits[2]
    assert max(waits) <= 0.2 + 1e-9  # docs/wire.md
    repeater.acked(1, OPERATION)
    assert repeater.timers.next_timeout() is None


def test_it_leaves_once_more_before_data_unless_it_is_known() -> None:
    repeater, flow = begun()
    told(flow)
    repeater.remind(flow, OPERATION, 10.0 + 2 * MIN_RTO)
    assert told(flow) == [], "the path is short, and loses nothing"
    flow.paths.space(0, 4).rtt.update(MIN_RTO)
    repeater.remind(flow, OPERATION, 10.0 + MIN_RTO / 2)
    assert told(flow) == []
    repeater.remind(flow, OPERATION, 10.0 + MIN_RTO)
    ((_, header, ready),) = told(flow)
    assert (header.round, ready) == (0, READY.told(4096, 4, 0xD1)), "it needs no answer"
    flow.paths.space(0, 4).lost = 1
    repeater.remind(flow, OPERATION, 10.0)
    assert len(told(flow)) == 1, "the path loses: the first may be lost"
    repeater.acked(1, OPERATION)
    repeater.remind(flow, OPERATION, 11.0)
    assert told(flow) == []


def test_it_is_unknown_until_the_peer_shows_otherwise() -> None:
    repeater, flow = begun()
    repeater.acked(2, OPERATION)
    repeater.acked(1, (3, EVERYBODY, 6))
    repeater.acked(1, (3, 1, 5))
    assert repeater.timers.pending(TIMER)
    repeater.acked(1, OPERATION)
    assert not repeater.timers.pending(TIMER)
    repeater.acked(1, OPERATION)  # told twice
    told(flow)
    repeater.repeat(flow, 11.0)  # a timer that was on its way
    assert told(flow) == []
    assert repeater.timers.next_timeout() is None


def test_what_was_told_just_now_is_not_repeated_with_what_is_older() -> None:
    repeater, flow = begun()
    at = repeater.timers.next_timeout()
    assert at is not None
    younger = (3, EVERYBODY, 6)
    repeater.send(flow, younger, pending(), at - 1e-4)
    told(flow)
    assert repeater.timers.pop_due(at) == [TIMER]
    repeater.repeat(flow, at)
    assert [header.operation for _, header, _ in told(flow)] == [5]
    assert repeater.timers.pending(TIMER)


def test_a_peer_that_is_behind_is_told_less_and_less_at_a_time_and_all_in_turn() -> None:
    """A peer that cannot take in what it gets must not get the same ones over and over."""
    repeater, flow = begun()
    for number in range(6, 105):
        repeater.send(flow, (3, EVERYBODY, number), pending(), 10.0)
    told(flow)
    counts, numbers = list[int](), list[int]()
    while len(numbers) < 100:
        at = repeater.timers.next_timeout()
        assert at is not None
        repeater.timers.pop_due(at)
        repeater.repeat(flow, at)
        again = [header.operation for _, header, _ in told(flow)]
        counts.append(len(again))
        numbers += again
    assert counts[:6] == [16, 8, 4, 2, 1, 1]
    assert numbers[:100] == list(range(5, 105))
    repeater.acked(1, (3, EVERYBODY, 50))
    at = repeater.timers.next_timeout()
    assert at is not None
    repeater.repeat(flow, at)
    assert len(told(flow)) == MOST_AGAIN, "what it shows to know is a sign that it keeps up"


# --- with data -----------------------------------------------------------------------------------


def carrying(data: bytes = b"seven b") -> PendingReady:
    ready = READY._replace(outgoing=len(data), carried=data)
    return PendingReady(ready, checked=4, digest=0xD1, late=False)


def begun_with_data(paths: int = 3) -> tuple[ReadyRepeater, Flow]:
    flow = SimNetwork(2, paths=paths).sessions[0].flows[1]
    repeater = ReadyRepeater(OWNER, TimerTable())
    repeater.send(flow, OPERATION, carrying(), 10.0)
    return repeater, flow


def repeat(repeater: ReadyRepeater, flow: Flow) -> list[OperationId]:
    """Let the timer expire."""
    at = repeater.timers.next_timeout()
    assert at is not None
    assert repeater.timers.pop_due(at) == [TIMER]
    return repeater.repeat(flow, at)


def test_data_go_on_one_path_at_first_and_on_all_with_each_repetition() -> None:
    repeater, flow = begun_with_data()
    ((path, header, ready),) = told(flow)
    assert path == flow.paths.for_control(0)
    assert (header.round, header.flags) == (0, Flag.CARRIES)
    assert ready.carried == b"seven b"
    for attempt in range(1, APART + 1):
        assert repeat(repeater, flow) == []
        again = told(flow)
        assert sorted(path for path, _, _ in again) == [0, 1, 2]
        assert {header.round for _, header, _ in again} == {attempt}
        assert {ready.carried for _, _, ready in again} == {b"seven b"}


def test_data_leave_ready_after_some_repetitions_once() -> None:
    repeater, flow = begun_with_data()
    for _ in range(APART):
        repeat(repeater, flow)
    told(flow)
    assert repeat(repeater, flow) == [OPERATION]
    for _, header, ready in told(flow):
        assert header.flags == 0
        assert ready.carried is None
        assert (ready.outgoing, ready.checked, ready.digest) == (7, 4, 0xD1)
    assert repeat(repeater, flow) == []
    repeater.acked(1, OPERATION)
    assert repeater.timers.next_timeout() is None


def test_a_late_ready_may_carry_data() -> None:
    flow = SimNetwork(2).sessions[0].flows[1]
    pending_ready = carrying()
    pending_ready.late = True
    ReadyRepeater(OWNER, TimerTable()).send(flow, OPERATION, pending_ready, 10.0)
    ((_, header, _),) = told(flow)
    assert header.flags == Flag.CARRIES | Flag.LATE


def test_readys_without_an_answer_carry_so_many_bytes_to_each_peer() -> None:
    flow = SimNetwork(3).sessions[0].flows[1]
    repeater = ReadyRepeater(OWNER, TimerTable())
    assert repeater.has_room(1, MOST_CARRIED)
    assert not repeater.has_room(1, MOST_CARRIED + 1)
    for number in range(1, 5):
        repeater.send(flow, (3, EVERYBODY, number), carrying(bytes(MOST_CARRIED // 4)), 10.0)
    assert not repeater.has_room(1, 1)
    assert repeater.has_room(2, MOST_CARRIED)
    repeater.send(flow, (3, EVERYBODY, 5), pending(), 10.0)  # without data
    repeater.acked(1, (3, EVERYBODY, 2))
    repeater.acked(1, (3, EVERYBODY, 5))
    assert repeater.has_room(1, MOST_CARRIED // 4)
    assert not repeater.has_room(1, MOST_CARRIED // 4 + 1)


def test_data_that_left_ready_take_no_room() -> None:
    repeater, flow = begun_with_data()
    for _ in range(APART + 1):
        assert not repeater.has_room(1, MOST_CARRIED)
        repeat(repeater, flow)
    assert repeater.has_room(1, MOST_CARRIED)
    repeater.acked(1, OPERATION)
    assert repeater.has_room(1, MOST_CARRIED)
    assert not repeater.has_room(1, MOST_CARRIED + 1)
