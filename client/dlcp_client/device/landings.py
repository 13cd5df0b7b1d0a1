"""Results on their way to a device: what they are read from stays until they are there."""

import threading
from collections import deque
from typing import Any

from dlcp_client.device.seam import Event


class Landings:
    """Copies to devices that may be under way. Nobody waits for them but who needs the memory.

    Safe to use from threads. Bounded: an entry holds a region of the arena, which is bounded, and
    each new one lets go of those that are over.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: deque[tuple[Event, Any]] = deque()  # a stream's own are done in their order

    def __len__(self) -> int:
        return len(self._open)

    def add(self, event: Event, kept: Any) -> None:
        """A copy has begun; `kept` is let go some time after `event`."""
        self.reap()
        with self._lock:
            self._open.append((event, kept))

    def reap(self) -> bool:
        """Let go of what is over. False: nothing was."""
        reaped = False
        with self._lock:
            while self._open and self._open[0][0].done():
                self._open.popleft()
                reaped = True
        return reaped

    def wait(self) -> bool:
        """Until the oldest copy is over. False: none is under way.

        Raises: what the device reports.
        """
        with self._lock:
            oldest = self._open[0][0] if self._open else None
        if oldest is None:
            return False
        oldest.wait()
        self.reap()
        return True

    def abandon(self) -> None:
        """In a forked child: the device is the parent's."""
        self._lock, self._open = threading.Lock(), deque()
