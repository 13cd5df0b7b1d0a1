"""Times that callers give: seconds or a timedelta, however long."""

from datetime import timedelta
from typing import Any, Final

MAX_TIME: Final = 20 * 86_400.0  # seconds; poll(2) counts milliseconds in 31 bits, up to 24.8 days


def seconds(time: Any) -> float | None:
    """`time` in seconds, MAX_TIME where it is more. None: it is no time, or not above 0."""
    if isinstance(time, timedelta):
        time = time.total_seconds()
    if isinstance(time, bool) or not isinstance(time, int | float) or not time > 0:
        return None  # NaN, too
    return float(min(time, MAX_TIME))
