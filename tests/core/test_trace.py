"""A recording: off it keeps nothing, on it keeps events in order, and never more than it may."""

import pytest

from dlcpd.core import trace as trace_module
from dlcpd.core.trace import MAX_NAME, NO_OPERATION, Trace


def test_events_carry_the_owners_clock_and_come_out_in_order() -> None:
    now = iter([1.0, 1.5, 2.0])
    trace = Trace(lambda: next(now))
    trace.start()
    for rank in range(3):
        trace.note("ready", 7, (0, -1, 1), rank)
    assert trace.take(2) == [
        (1_000_000, "ready", 7, 0, -1, 1, 0),
        (1_500_000, "ready", 7, 0, -1, 1, 1),
    ]
    assert len(trace) == 1
    trace.stop()
    assert [event[-1] for event in trace.take(9)] == [2] and not trace.take(9)


def test_a_step_begins_where_the_first_name_of_a_session_comes_again() -> None:
    trace = Trace()
    trace.start()
    names = ["a", "b", "a", "b", "b", "a"]
    steps = []
    for number, name in enumerate(names):
        trace.submitted(7, (0, -1, number), name)
        steps.append(trace.steps)
    assert steps == [0, 0, 1, 1, 1, 2]
    trace.submitted(8, (0, -1, 1), "z")  # another session's first step is not complete
    assert trace.steps == 2
    trace.start()
    assert (trace.steps, len(trace)) == (0, 0)


def test_a_recording_ends_when_there_is_no_more_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_module, "MAX_EVENTS", 3)
    trace = Trace()
    trace.start()
    for _ in range(2):
        trace.note("result", 7, NO_OPERATION)
    assert trace.on and not trace.full
    trace.note("result", 7, NO_OPERATION)
    assert not trace.on and trace.full
    assert len(trace.take(99)) == 3 and not trace.full


def test_what_is_forgotten_is_gone_and_names_are_short() -> None:
    trace = Trace()
    trace.start()
    trace.submitted(7, NO_OPERATION, "x" * 300)
    [event] = trace.take(1)
    assert event[6] == "x" * MAX_NAME
    trace.note("result", 7, NO_OPERATION)
    trace.forget()
    assert not trace.on and not len(trace)
