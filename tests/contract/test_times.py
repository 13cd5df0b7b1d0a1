"""Times of callers: all that PyTorch takes, in seconds, within what poll(2) counts."""

import math
from datetime import timedelta
from typing import Any

import pytest

from dlcpd.contract.policy import exact
from dlcpd.contract.times import MAX_TIME, seconds


@pytest.mark.parametrize(
    ("time", "counted"),
    [
        (1, 1.0), (0.25, 0.25), (5e-324, 5e-324), (MAX_TIME, MAX_TIME),
        (timedelta(minutes=30), 1800.0), (timedelta(hours=2), 7200.0),
        (timedelta(microseconds=1), 1e-6), (MAX_TIME + 1, MAX_TIME), (math.inf, MAX_TIME),
        (timedelta(days=10**6), MAX_TIME), (timedelta.max, MAX_TIME),
    ],
    ids=str,
)  # fmt: skip
def test_any_positive_time_is_taken(time: Any, counted: float) -> None:
    assert seconds(time) == counted
    assert exact(deadline=time).deadline == counted


@pytest.mark.parametrize(
    "time",
    [0, 0.0, -1, -math.inf, math.nan, timedelta(0), timedelta(-1), "60", None, True],
    ids=str,
)
def test_what_is_no_time_is_told_apart(time: Any) -> None:
    assert seconds(time) is None


def test_poll_counts_the_longest_time() -> None:
    assert MAX_TIME * 1000 < 1 << 31
