"""Logs once that longer times count as MAX_TIME (dlcpd.contract.times)."""

import logging
from functools import cache
from typing import Final

from dlcpd.contract.times import MAX_TIME

_DAYS: Final = MAX_TIME / 86_400
_log: Final = logging.getLogger("dlcp_client")


def noted(seconds: float) -> float:
    """Returns `seconds`. Logs the first value of MAX_TIME, which may stand for a longer time."""
    if seconds >= MAX_TIME:
        _say()
    return seconds


@cache
def _say() -> None:
    """Log once per process: scripts give each operation the same long time."""
    _log.warning("a time above %.0f days counts as %.0f days", _DAYS, _DAYS)
