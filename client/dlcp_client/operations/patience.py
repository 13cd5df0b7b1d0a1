"""Warns when an operation waits too long: names it, its waiting time, and the late ranks.

Too long is relative to the job: ten times the usual time of its operations, at least 5 s and at
most 60 s. So late ranks are named long before the deadline, and ordinary steps cause no warning.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from dlcp_client.operations.work import Work

LEAST: Final = 5.0  # seconds, by default; garbage collections and slow disks take less
MOST: Final = 60.0  # seconds; also while the job's pace is unknown
FACTOR: Final = 10.0  # multiple of the usual time
GAIN: Final = 1 / 8  # weight of the last operation in the usual time
BETWEEN: Final = 60.0  # seconds between two warnings

_log: Final = logging.getLogger("dlcp_client")


class Pace:
    """The usual time of this job's operations, and the limit derived from it. Has no clock.

    `least`: seconds, the smallest limit; 0: no limit.
    """

    def __init__(self, least: float = LEAST) -> None:
        self._least = least
        self._usual: float | None = None

    @property
    def usual(self) -> float:
        """Seconds from submission to result; 0 before the first."""
        return self._usual or 0.0

    def took(self, seconds: float) -> None:
        """Record an operation that succeeded after `seconds`."""
        usual = seconds if self._usual is None else self._usual
        self._usual = usual + GAIN * (seconds - usual)

    @property
    def long(self) -> float:
        """Seconds after which a waiting operation is late."""
        if not self._least:
            return float("inf")
        if self._usual is None:
            return max(MOST, self._least)
        return max(min(FACTOR * self._usual, MOST), self._least)


class Patience:
    """Warns once per stall: again only for an operation submitted after the warning.

    `waiting_for` asks the daemon which transfers it waits for; "" without an answer.
    """

    def __init__(self, waiting_for: Callable[[], str], pace: Pace) -> None:
        self._waiting_for, self._pace = waiting_for, pace
        self._told_at: float | None = None  # monotonic time of the last warning
        self._telling = threading.Lock()

    def look(self, oldest: tuple[int, Work[Any]] | None) -> None:
        """`oldest`: number and work of the operation that has waited longest. Thread-safe."""
        if oldest is None or not self._due(oldest[1].begun, time.monotonic()):
            return
        if self._telling.acquire(blocking=False):
            try:
                self._tell(*oldest)
            finally:
                self._telling.release()

    def _due(self, begun: float, now: float) -> bool:
        if now - begun < self._pace.long:
            return False
        told = self._told_at
        return told is None or (begun > told and now - told >= BETWEEN)

    def _tell(self, number: int, work: Work[Any]) -> None:
        self._told_at = time.monotonic()
        what = self._waiting_for() or "what this host's dlcpd does not say: see its log"
        now = time.monotonic()
        _log.warning(
            "operation %d (%s) has waited for %.0f s, where %.2g s are usual, for %s; it fails in "
            "%.0f s, by deadline= of its policy",
            number,
            work.label,
            now - work.begun,
            self._pace.usual,
            what,
            max(work.expires - now, 0.0),
        )
