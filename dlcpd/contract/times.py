"""Times that callers give: seconds or a timedelta, however long."""

import logging
from datetime import timedelta
from functools import cache
from typing import Any, Final

MAX_TIME: Final = 20 * 86_400.0  # seconds; poll(2) counts milliseconds in 31 bits, up to 24.8 days

_log: Final = logging.getLogger("dlcp_client")


def seconds(time: Any) -> float | None:
    """`time` in seconds, MAX_TIME where it is more. None: it is no time, or not above 0."""
    if isinstance(time, timedelta):
        time = time.total_seconds()
    if isinstance(time, bool) or not isinstance(time, int | float) or not time > 0:
        return None  # NaN, too
    if time > MAX_TIME:
        _say_capped()
        time = MAX_TIME
    return float(time)


@cache
def _say_capped() -> None:
    """Once in a process: scripts give each operation the same long time."""
    _log.warning("times of more than %.0f days count as %.0f days", *[MAX_TIME / 86_400] * 2)
