"""A thread that submits operations whose input is still being copied from a device."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

JOIN_TIMEOUT: Final = 5.0  # seconds; a kernel that never ends must not block close()


class Submitter:
    """Runs jobs one at a time, in order.

    Operations must leave in the same order on every rank, but copies end in any order: so no job
    overtakes another. The first job starts the thread; it sleeps while there is none. Bounded: a
    job holds a tensor of its caller and, at most, its regions of the arena.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.jobs: Final = deque[Callable[[], None]]()  # not done; the first one may be running
        self._thread: threading.Thread | None = None
        self._closing = False

    def put(self, job: Callable[[], None]) -> None:
        """Queue `job`, which raises nothing."""
        with self._changed:
            self.jobs.append(job)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._serve, name="dlcp-staging", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def close(self) -> bool:
        """Run the queued jobs and end the thread. False: a job blocks and keeps running."""
        until = time.monotonic() + JOIN_TIMEOUT
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(max(0.0, until - time.monotonic()))
            return not self._thread.is_alive()
        return True

    def abandon(self) -> None:
        """In a forked child: the thread does not exist."""
        self._changed, self._thread = threading.Condition(), None
        self.jobs.clear()

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self.jobs or self._closing)
                if not self.jobs:
                    return
                job = self.jobs[0]
            job()
            del job  # an idle thread holds no tensors
            with self._changed:
                self.jobs.popleft()
