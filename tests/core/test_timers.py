"""Many timers: the earliest is told, a replaced or cancelled one never fires, none pile up."""

import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.core.timers import MOST_DUE, TimerTable


def test_empty_table_has_no_timeout() -> None:
    assert TimerTable().next_timeout() is None
    assert TimerTable().pop_due(1e9) == []


def test_due_keys_come_in_order_of_their_times_and_only_once() -> None:
    timers = TimerTable()
    for key, at in (("late", 3.0), ("early", 1.0), ("middle", 2.0)):
        timers.set(key, at)
    assert timers.next_timeout() == 1.0
    assert timers.pop_due(2.0) == ["early", "middle"]
    assert not timers.pending("early")
    assert timers.pending("late")
    assert timers.pop_due(2.0) == []
    assert len(timers) == 1


def test_equal_times_fire_in_order_of_setting() -> None:
    timers = TimerTable()
    for key in ("a", "b", "c"):
        timers.set(key, 1.0)
    assert timers.pop_due(1.0) == ["a", "b", "c"]


def test_so_many_are_due_at_a_time_and_the_others_stay() -> None:
    timers = TimerTable()
    for key in range(2 * MOST_DUE):
        timers.set(key, 1.0)
    assert timers.pop_due(1.0) == list(range(MOST_DUE))
    assert timers.next_timeout() == 1.0
    assert timers.pop_due(1.0) == list(range(MOST_DUE, 2 * MOST_DUE))


@pytest.mark.parametrize(("first", "second"), [(1.0, 2.0), (2.0, 1.0)])
def test_setting_again_replaces(first: float, second: float) -> None:
    timers = TimerTable()
    timers.set("k", first)
    timers.set("k", second)
    assert timers.next_timeout() == second
    assert timers.pop_due(5.0) == ["k"]


def test_back_and_forth_fires_once() -> None:
    timers = TimerTable()
    for at in (1.0, 2.0, 1.0):
        timers.set("k", at)
    assert timers.pop_due(5.0) == ["k"]
    assert timers.next_timeout() is None


def test_cancel_and_cancel_of_nothing() -> None:
    timers = TimerTable()
    timers.set("k", 1.0)
    timers.cancel("k")
    timers.cancel("unknown")
    assert timers.next_timeout() is None
    assert len(timers) == 0


def test_discard_takes_all_that_match() -> None:
    timers = TimerTable()
    for owner in ("a", "b"):
        for number in range(3):
            timers.set((owner, number), 1.0)
    timers.discard(lambda key: key[0] == "a")
    assert timers.pop_due(1.0) == [("b", 0), ("b", 1), ("b", 2)]


def test_what_is_discarded_is_not_held_any_more() -> None:
    """Nor what was cancelled: operations hold tensors, and a deadline may be an hour away."""

    class Operation:
        pass

    timers = TimerTable()
    timers.set("earlier", 1.0)
    held = []
    for cancelled in (True, False):
        operation = Operation()
        held.append(weakref.ref(operation))
        timers.set((1, operation), 3600.0)
        if cancelled:
            timers.cancel((1, operation))
    del operation
    timers.discard(lambda key: key[0] == 1)
    assert [ref() for ref in held] == [None, None]
    assert timers.next_timeout() == 1.0


def test_cancelled_timers_do_not_pile_up() -> None:
    """A deadline an hour away is set and cancelled with every operation of a fast job."""
    timers = TimerTable()
    timers.set("keep", 7200.0)
    for number in range(10_000):
        timers.set(number, 3600.0)
        timers.set("again", 3600.0 + number % 2)
        timers.cancel(number)
    assert timers.entries < 1000
    assert timers.pop_due(1e9) == ["again", "keep"]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.one_of(st.none(), st.integers(0, 20)))),
    st.integers(0, 20),
)
def test_agrees_with_a_plain_dictionary(steps: list[tuple[int, int | None]], now: int) -> None:
    timers, model = TimerTable(), dict[int, float]()
    for key, at in steps:
        if at is None:
            timers.cancel(key)
            model.pop(key, None)
        else:
            timers.set(key, float(at))
            model[key] = float(at)
    assert timers.next_timeout() == min(model.values(), default=None)
    due = timers.pop_due(now)
    assert sorted(due, key=str) == sorted((k for k, at in model.items() if at <= now), key=str)
    assert [model[k] for k in due if isinstance(k, int)] == sorted(model[k] for k in due)  # type: ignore[index]
    assert len(timers) == len(model) - len(due)
