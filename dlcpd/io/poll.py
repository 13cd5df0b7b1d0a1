"""The engine's wait: for descriptors, with a handler each, and for a time."""

import select
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, Protocol

from dlcpd.ipc import kernel_errors

Handler = Callable[[int, float], None]  # epoll's mask, and now
READ: Final = select.EPOLLIN
WRITE: Final = select.EPOLLOUT
ERROR: Final = select.EPOLLERR
FINE_SLEEP: Final = 0.001  # seconds; below it, epoll's millisecond is too coarse
MOST_SELECTED: Final = 1024  # descriptors from this number on are beyond select(2)
FAILURE_REST: Final = 0.01  # seconds after a failed call, and until a failed one is repeated


class EngineBroken(BaseException):
    """The engine can wait or receive no more. Not an Exception: handlers of bugs cannot mend it."""


class Source(Protocol):
    """Anything with a descriptor."""

    def fileno(self) -> int: ...


class Poll:
    """Level-triggered. A handler may watch and forget sources, its own too. `counters` counts
    failed calls by their names."""

    def __init__(self, counters: Counter[str] | None = None) -> None:
        self._counters = Counter[str]() if counters is None else counters
        self._epoll = select.epoll()
        self._handlers: dict[int, Handler] = {}
        self._ends_pause = set[int]()  # those that can be read end `pause`
        self._masks: dict[int, int] = {}  # as the kernel knows them
        self._late: dict[int, int] = {}  # masks that the kernel has yet to get: the call failed
        self._in_a_row = 0  # waits that failed

    def fileno(self) -> int:
        return self._epoll.fileno()

    def watch(self, source: Source, handler: Handler, *, pauses: bool = False) -> None:
        """Call `handler` whenever `source` can be read. `pauses`: it does not end a `pause`.
        Raises: OSError, and it is not watched."""
        descriptor = source.fileno()
        self._epoll.register(descriptor, READ)
        if not pauses:
            self._ends_pause.add(descriptor)
        self._handlers[descriptor], self._masks[descriptor] = handler, READ

    def watch_writing(self, source: Source, wanted: bool) -> None:
        """Call the handler also, or no longer, when `source` can be written. A no-op if not
        watched."""
        descriptor, mask = source.fileno(), READ | WRITE if wanted else READ
        if descriptor in self._handlers:
            self._late.pop(descriptor, None)
            if self._masks[descriptor] != mask:
                self._modify(descriptor, mask)

    def _modify(self, descriptor: int, mask: int) -> None:
        try:
            self._epoll.modify(descriptor, mask)
            self._masks[descriptor] = mask
        except OSError as exc:
            self._count(exc)
            self._late[descriptor] = mask

    def forget(self, source: Source) -> None:
        """Watch it no longer; before it is closed."""
        descriptor = source.fileno()
        with suppress(OSError, ValueError):  # it was not watched, or leaves when it is closed
            self._epoll.unregister(descriptor)
        self._ends_pause.discard(descriptor)
        for known in (self._handlers, self._masks, self._late):
            known.pop(descriptor, None)

    def pause(self, seconds: float) -> None:
        """Wait, until another source than those that pause can be read. Does nothing where the
        kernel cannot: the next `wait` waits for all."""
        if max(self._ends_pause, default=0) < MOST_SELECTED:
            try:
                select.select(self._ends_pause, [], [], seconds)
            except OSError as exc:
                self._count(exc)

    def wait(self, timeout: float) -> Iterator[tuple[Handler, int]]:
        """Handlers to call now, with their masks; waits for at most `timeout` seconds, without a
        limit if it is below 0.

        Raises: EngineBroken, after kernel_errors.TRIES failures in a row.
        """
        if self._late:
            self._modify_late()
            timeout = timeout if 0.0 <= timeout < FAILURE_REST else FAILURE_REST
        for descriptor, mask in self._ready(timeout):
            handler = self._handlers.get(descriptor)
            if handler is not None:  # an earlier handler of this round may have forgotten it
                yield handler, mask

    def _modify_late(self) -> None:
        """Repeat the calls that failed."""
        late, self._late = self._late, {}
        for descriptor, mask in late.items():
            self._modify(descriptor, mask)

    def _ready(self, timeout: float) -> list[tuple[int, int]]:
        try:
            if 0.0 < timeout < FINE_SLEEP:
                select.select([self._epoll.fileno()], [], [], timeout)
                timeout = 0.0
            ready = self._epoll.poll(timeout if timeout >= 0 else None)
        except OSError as exc:
            self._count(exc)
            self._in_a_row += 1
            if self._in_a_row >= kernel_errors.TRIES:
                raise EngineBroken from exc
            time.sleep(FAILURE_REST)
            return []
        self._in_a_row = 0
        return ready

    def _count(self, why: OSError) -> None:
        kernel_errors.count(self._counters, "poll", why)
