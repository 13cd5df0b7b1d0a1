"""Results being copied to a device: keeps their source memory until the copy is complete."""

import threading
from collections import deque
from typing import Any

from dlcp_client.device.seam import Event


class PendingCopies:
    """Copies to devices that may be in progress. Only an allocation that needs the memory waits.

    Thread-safe. Bounded: an entry holds a region of the arena, which is bounded, and each new entry
    releases the completed ones.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: deque[tuple[Event, Any]] = deque()  # copies of one stream complete in order

    def __len__(self) -> int:
        return len(self._open)

    def add(self, event: Event, kept: Any) -> None:
        """Register a copy; `kept` is released some time after `event`."""
        self.reap()
        with self._lock:
            self._open.append((event, kept))

    def reap(self) -> bool:
        """Release completed copies. False: there was none."""
        reaped = False
        with self._lock:
            while self._open and self._open[0][0].done():
                self._open.popleft()
                reaped = True
        return reaped

    def wait(self) -> bool:
        """Wait until the oldest copy is complete. False: none is in progress.

        Raises: the error that the device reports.
        """
        with self._lock:
            oldest = self._open[0][0] if self._open else None
        if oldest is None:
            return False
        oldest.wait()
        self.reap()
        return True

    def abandon(self) -> None:
        """In a forked child: the device belongs to the parent."""
        self._lock, self._open = threading.Lock(), deque()
