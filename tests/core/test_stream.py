"""The sequence of a group's operations: what began, what peers announced, what is remembered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.contract.errors import OperationAborted
from dlcpd.contract.messages import MAX_GROUPS
from dlcpd.core.session.stream import MAX_AHEAD, Stream
from dlcpd.core.session.stream_ids import (
    DOWNWARD,
    EVERYBODY,
    MESSAGES,
    UPWARD,
    is_known,
    messages,
    stream_id,
)
from dlcpd.core.wire.control import Ready
from dlcpd.core.wire.header import MAX_STREAMS

READY = Ready("sum of float32[9]", 1, 128)


# --- numbers on the wire --------------------------------------------------------------------


def test_groups_and_both_ways_of_their_messages_fit_the_wire_and_do_not_meet() -> None:
    numbers = {(MAX_GROUPS - 1) | way for way in (0, UPWARD, DOWNWARD)}
    assert len(numbers) == 3
    assert max(numbers) < MAX_STREAMS
    assert not (MAX_GROUPS - 1) & MESSAGES


@given(st.integers(0, MAX_GROUPS - 1), st.integers(0, 255), st.integers(0, 255))
def test_both_ends_call_a_stream_of_messages_alike(group: int, one: int, other: int) -> None:
    if one == other:
        return
    there, back = messages(group, one, other), messages(group, other, one)
    assert there != back
    for stream in (there, back):
        assert is_known(stream)
        assert stream & ~MESSAGES == group
        assert stream_id(stream, one) == (stream, one)


def test_a_stream_of_collectives_is_one_for_all_ranks() -> None:
    assert stream_id(7, 1) == stream_id(7, 2) == (7, EVERYBODY)


def test_a_stream_of_both_ways_at_once_is_none() -> None:
    assert not is_known(MESSAGES)
    assert not is_known(MESSAGES | 5)
    assert all(is_known(stream) for stream in (0, 5, UPWARD, DOWNWARD | 5))


# --- what began -----------------------------------------------------------------------------


@given(st.permutations(range(1, 9)))
def test_operations_may_begin_in_any_order(order: list[int]) -> None:
    stream, seen = Stream(0), set[int]()
    for number in order:
        assert not stream.has_begun(number)
        stream.begin(number)
        seen.add(number)
        assert [n for n in range(1, 9) if stream.has_begun(n)] == sorted(seen)
    assert stream.begun == 8
    assert not stream._beyond  # noqa: SLF001  # nothing is kept of what is in sequence
    assert stream.next_number() == 9


def test_the_next_number_is_after_all_that_began_in_sequence() -> None:
    stream = Stream(0)
    for number in (1, 2, 4):
        stream.begin(number)
    assert stream.next_number() == 3


@pytest.mark.parametrize(
    ("number", "near"),
    [(1, False), (2, False), (3, True), (4, False), (5, True), (2 + MAX_AHEAD, True),
     (3 + MAX_AHEAD, False)],
)  # fmt: skip
def test_what_has_not_begun_is_near_up_to_a_bound(number: int, near: bool) -> None:
    stream = Stream(0)
    for begun in (1, 2, 4):
        stream.begin(begun)
    assert stream.near(number) is near


# --- what is remembered -----------------------------------------------------------------------


def test_what_a_peer_announced_is_taken_once() -> None:
    stream = Stream(0)
    stream.announce(1, 3, READY)
    assert stream.take(2, 3) is None
    assert stream.take(1, 4) is None
    assert stream.take(1, 3) is READY
    assert stream.take(1, 3) is None


def offered(stream: Stream) -> list[int]:
    return [number for number, _ in stream.offers()]


@given(st.permutations(range(1, 9)), st.integers(1, 8))
def test_messages_are_offered_in_order_and_once(order: list[int], waived: int) -> None:
    stream, told = Stream(UPWARD, peer=1), list[int]()
    for number in order:
        if number == waived:
            stream.begin(number)
        else:
            stream.announce(1, number, READY)
        told += offered(stream)
        for repeated in told:
            stream.announce(1, repeated, READY)
        assert offered(stream) == []
    assert told == [number for number in range(1, 9) if number != waived]


def test_what_another_rank_announces_is_not_offered() -> None:
    stream = Stream(UPWARD, peer=1)
    stream.announce(2, 1, READY)
    assert offered(stream) == []


def test_why_data_cannot_be_taken() -> None:
    stream = Stream(0)
    stream.begin(1)
    stream.begin(2)
    stream.fail(2)
    assert [stream.refusal(n) for n in (1, 2, 3)] == ["stale", "failed", "early"]


def test_failures_are_forgotten_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlcpd.core.session.stream.MAX_FAILED", MAX_AHEAD)
    stream = Stream(0)
    for number in range(1, MAX_AHEAD + 3):
        stream.begin(number)
        stream.fail(number)
    assert [stream.refusal(n) for n in (1, 2, 3)] == ["stale", "stale", "failed"]
    assert stream.refusal(MAX_AHEAD + 2) == "failed"


def test_what_failed_before_it_began_is_told_once() -> None:
    stream, error = Stream(0), OperationAborted("rank 1 aborted")
    stream.abort_ahead(5, error)
    assert stream.aborted_ahead(4) is None
    assert stream.aborted_ahead(5) is error
    assert stream.aborted_ahead(5) is None
