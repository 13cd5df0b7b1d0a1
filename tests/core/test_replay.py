"""The window over counters, against a set that forgets nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.core.wire.replay import WORDS, ReplayWindow

SPAN = 64 * WORDS  # counters whose words the window holds


def counters(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def taken(window: ReplayWindow, *values: int) -> list[bool]:
    """What an owner does: take those that are unseen."""
    asked = counters(*values)
    fresh = window.unseen(asked)
    at = np.flatnonzero(fresh)
    fresh[at] = window.take(asked[at])
    return list(map(bool, fresh))


def test_each_comes_once_in_any_order() -> None:
    window = ReplayWindow()
    assert taken(window, 3, 1, 2) == [True, True, True]
    assert taken(window, 1, 2, 3, 4) == [False, False, False, True]


def test_of_the_same_among_others_the_first_counts() -> None:
    assert taken(ReplayWindow(), 7, 9, 7, 9, 8) == [True, True, False, False, True]


def test_nothing_has_counter_0() -> None:
    assert taken(ReplayWindow(), 0) == [False]


def test_to_ask_notes_nothing() -> None:
    window = ReplayWindow()
    assert window.unseen(counters(5, SPAN * 3)).all()
    assert window.unseen(counters(5, SPAN * 3)).all()
    assert window.newest == 0


@pytest.mark.parametrize("newest", [SPAN - 1, SPAN, SPAN + 63, 5 * SPAN + 17, (1 << 48) - 1])
def test_the_edges(newest: int) -> None:
    """What is as old as the window is wide still counts, what is older does not."""
    window = ReplayWindow()
    assert taken(window, newest) == [True]
    oldest = max(((newest >> 6) - WORDS + 1) << 6, 1)
    assert newest - oldest >= SPAN - 64
    assert taken(window, oldest, newest) == [True, False]
    assert taken(window, oldest - 1) == [False]
    assert taken(window, oldest) == [False]


@pytest.mark.parametrize("jump", [1, 63, 64, 65, SPAN - 64, SPAN, SPAN + 64, 10 * SPAN])
def test_places_that_are_reached_again_have_forgotten_what_was_there(jump: int) -> None:
    window = ReplayWindow()
    assert all(taken(window, *range(1, 200)))
    assert taken(window, 199 + jump) == [True]
    assert taken(window, 200 + jump, 201 + jump) == [True, True]


def test_more_at_once_than_the_window_holds() -> None:
    window = ReplayWindow()
    assert all(taken(window, *range(2 * SPAN, 0, -1)))
    assert not any(taken(window, *range(2 * SPAN, 0, -1)))


def test_what_a_batch_leaves_behind_does_not_stand_for_what_is_ahead() -> None:
    """5 has left the window as 2 SPAN enters it; 2 SPAN + 5 has the same place."""
    window = ReplayWindow()
    assert taken(window, 5, 2 * SPAN) == [True, True]
    assert taken(window, 2 * SPAN + 5) == [True]


@given(st.lists(st.lists(st.integers(0, 3 * SPAN), min_size=1, max_size=8), max_size=20))
def test_as_a_set_would_have_it(arrivals: list[list[int]]) -> None:
    window, seen, newest = ReplayWindow(), {0}, 0
    for batch in arrivals:
        oldest = ((newest >> 6) - WORDS + 1) << 6
        expected = []
        for value in batch:
            expected.append(value >= oldest and value not in seen)
            seen.add(value)
        assert taken(window, *batch) == expected
        newest = max([newest, *(v for v, good in zip(batch, expected, strict=True) if good)])
