"""A thread that submits operations whose input is still on its way from a device."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

JOIN_TIMEOUT: Final = 5.0  # seconds; a kernel that never ends must not keep close() from ending


class Submitter:
    """Does jobs one after the other, in the order in which they were given.

    Every rank's operations must leave in one order, and copies end when they like: so no job
    overtakes another. The thread exists from the first job on, and sleeps while there is none.
    Bounded: a job holds a tensor of its caller and, at most, its regions of the arena.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._jobs: deque[Callable[[], None]] = deque()  # the first one may be under way
        self._thread: threading.Thread | None = None
        self._closing = False

    @property
    def idle(self) -> bool:
        """Whether all that was given is done."""
        return not self._jobs

    def put(self, job: Callable[[], None]) -> None:
        """Have `job` done, which raises nothing."""
        with self._changed:
            self._jobs.append(job)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._serve, name="dlcp-staging", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def close(self) -> bool:
        """Do what is there, and end the thread. False: a job blocks, and is left behind."""
        until = time.monotonic() + JOIN_TIMEOUT
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(max(0.0, until - time.monotonic()))
            return not self._thread.is_alive()
        return True

    def abandon(self) -> None:
        """In a forked child: the thread is not here."""
        self._changed, self._thread, self._jobs = threading.Condition(), None, deque()

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or self._closing)
                if not self._jobs:
                    return
                job = self._jobs[0]
            job()
            del job  # an idle thread holds no tensors
            with self._changed:
                self._jobs.popleft()
