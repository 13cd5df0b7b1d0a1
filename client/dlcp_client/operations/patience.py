"""A warning when an operation waits for long: which one, since when, and for whom."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from dlcp_client.operations.work import Work

WARN_AFTER: Final = 60.0  # seconds; a healthy step is far below, an evaluation on one rank is not

_log: Final = logging.getLogger("dlcp_client")


class Patience:
    """Warns once per stall: again only for an operation submitted after the warning.

    `waiting_for` asks the daemon what it waits for; "" when it does not say.
    """

    def __init__(self, waiting_for: Callable[[], str]) -> None:
        self._waiting_for = waiting_for
        self._told_at = 0.0  # monotonic time of the last warning
        self._telling = threading.Lock()

    def look(self, oldest: tuple[int, Work] | None) -> None:
        """`oldest`: number and work of the operation that waits for longest. Any thread calls."""
        if oldest is None or oldest[1].begun <= self._told_at:
            return
        if time.monotonic() - oldest[1].begun < WARN_AFTER:
            return
        if self._telling.acquire(blocking=False):
            try:
                self._tell(*oldest)
            finally:
                self._telling.release()

    def _tell(self, number: int, work: Work) -> None:
        self._told_at = time.monotonic()
        what = self._waiting_for() or "what this host's dlcpd does not say: see its log"
        now = time.monotonic()
        _log.warning(
            "operation %d (%s) has waited for %.0f s, for %s; it fails in %.0f s, by deadline= of "
            "its policy",
            number, work.label, now - work.begun, what, max(work.expires - now, 0.0),
        )  # fmt: skip
