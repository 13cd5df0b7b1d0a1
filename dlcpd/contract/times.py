"""Converts durations given by callers, seconds or a timedelta, to bounded seconds."""

from datetime import timedelta
from typing import Any, Final

MAX_TIME: Final = 20 * 86_400.0  # seconds; poll(2) counts milliseconds in 31 bits, up to 24.8 days


def seconds(time: Any) -> float | None:
    """`time` in seconds, at most MAX_TIME. None: it is no duration, or not above 0."""
    if isinstance(time, timedelta):
        time = time.total_seconds()
    if isinstance(time, bool) or not isinstance(time, int | float) or not time > 0:
        return None  # NaN, too
    return float(min(time, MAX_TIME))
