"""Completes Futures of works that no thread waits for: a reader of the lanes, and callback threads.

They start with the first Future, and sleep while none is open.
"""

import threading
import time
from queue import SimpleQueue
from typing import Any, Final

from dlcp_client.operations.lanes import Lanes
from dlcp_client.operations.open_operations import Operations
from dlcp_client.operations.work import Work

# Callbacks may wait for other operations (PowerSGD does). So the reader never runs them, and there
# are enough threads for one to be idle. A thread starts only if none is idle.
MAX_THREADS: Final = 16
JOIN_TIMEOUT: Final = 1.0  # seconds; a callback that hangs must not block close()


class Callbacks:
    """Daemon threads, started on demand. Not an executor: executors end before atexit runs."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Work[Any] | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []

    def run(self, work: Work[Any]) -> None:
        """Call `work.complete` soon. Not to be called from two threads at once."""
        self._jobs.put(work)
        if not self._idle.acquire(blocking=False) and len(self._threads) < MAX_THREADS:
            thread = threading.Thread(target=self._serve, name="dlcp-callbacks", daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """End the threads after the queued works."""
        for _ in self._threads:
            self._jobs.put(None)
        deadline = time.monotonic() + JOIN_TIMEOUT
        for thread in self._threads:
            if thread is not threading.current_thread():  # a callback may close its session
                thread.join(max(0.0, deadline - time.monotonic()))

    def _serve(self) -> None:
        while (work := self._jobs.get()) is not None:
            work.complete()
            del work  # idle threads hold no tensors
            self._idle.release()


class Completion:
    """Watches works with a Future, and completes them after their end."""

    def __init__(self) -> None:
        self._watched: set[Work[Any]] = set()
        self._callbacks = Callbacks()
        self._reader: threading.Thread | None = None
        self._stopping = False

    def ended_locked(self, work: Work[Any]) -> None:
        """Complete an ended work if it is watched. The caller holds the table's lock."""
        if work in self._watched:
            self._watched.remove(work)
            self._callbacks.run(work)

    def watch(self, work: Work[Any], table: Operations, lanes: Lanes) -> None:
        """Complete `work` after its end, even if no thread waits for it."""
        with table.lock:
            if work.ended or self._stopping:
                self._callbacks.run(work)
                return
            self._watched.add(work)
            if self._reader is None:
                self._reader = threading.Thread(
                    target=self._read, args=(table, lanes), name="dlcp-reader", daemon=True
                )
                self._reader.start()
            table.changed.notify_all()

    def close(self, table: Operations) -> None:
        """End all threads. Every work must have an outcome."""
        with table.lock:
            self._stopping = True
            table.changed.notify_all()
        if self._reader is not None and self._reader is not threading.current_thread():
            self._reader.join(JOIN_TIMEOUT)
        self._callbacks.close()

    def abandon(self) -> None:
        """In a forked child: the threads do not exist."""
        self._watched, self._callbacks, self._reader = set(), Callbacks(), None
        self._stopping = True

    def _read(self, table: Operations, lanes: Lanes) -> None:
        while not self._stopping:
            with table.lock:
                table.changed.wait_for(lambda: self._watched or self._stopping)
            lanes.wait_until(lambda: not self._watched or self._stopping, table.next_expiry())
            table.expire(time.monotonic())
