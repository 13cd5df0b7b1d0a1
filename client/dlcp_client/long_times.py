"""Times end at MAX_TIME (dlcpd.contract.times), which the log says."""

import logging
from functools import cache
from typing import Final

from dlcpd.contract.times import MAX_TIME

_DAYS: Final = MAX_TIME / 86_400
_log: Final = logging.getLogger("dlcp_client")


def noted(seconds: float) -> float:
    """`seconds`. The first that are MAX_TIME, and so maybe stand for more, are told."""
    if seconds >= MAX_TIME:
        _say()
    return seconds


@cache
def _say() -> None:
    """Once in a process: scripts give each operation the same long time."""
    _log.warning("times of more than %.0f days count as %.0f days", _DAYS, _DAYS)
