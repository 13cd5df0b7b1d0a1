"""Whether the daemon lives, and whether it takes new jobs. Threads may read it at any time."""

import time
from collections.abc import Callable
from typing import Final

from dlcpd.contract.inquiries import Health

PATIENCE: Final = 60.0  # seconds, where no service manager has a watchdog: as in our unit


class Condition:
    """`limit`: seconds without an answer of all engines after which the daemon is not healthy, as
    for the service manager's watchdog; 0: PATIENCE."""

    def __init__(self, limit: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit or PATIENCE
        self._clock = clock
        self._proved_at = clock()
        self.draining = False  # the daemon ends, and takes no new session
        self.cordon: str | None = None  # an operator's reason to take no new jobs; None: taken
        self.detached = ""  # why no client can connect
        self.failing = ""  # the engines that end again and again, in words

    def proved(self, failing: str) -> None:
        """The control process runs, and all engines that are up answered."""
        self._proved_at, self.failing = self._clock(), failing

    @property
    def cordoned(self) -> str:
        """For errors and reports: that an operator lets no new jobs in, and why; empty: no."""
        if self.cordon is None:
            return ""
        return f"cordoned ({self.cordon})" if self.cordon else "cordoned"

    def health(self) -> Health:
        """Healthy: a restart would not help. Ready: new jobs are taken, unless limits forbid it."""
        silent = self._clock() - self._proved_at
        if silent > self.limit and not self.draining:
            text = f"not all of control and engines have answered for {silent:.0f} s"
            return Health(healthy=False, ready=False, text=text)
        unready = "draining" if self.draining else self.cordoned or self.detached or self.failing
        return Health(healthy=True, ready=not unready, text=unready)
