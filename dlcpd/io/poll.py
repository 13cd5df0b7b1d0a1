"""What an engine waits for: descriptors with a handler each, and a time."""

import select
from collections.abc import Callable, Iterator
from typing import Final, Protocol

Handler = Callable[[int, float], None]  # mask of what is possible, and now
READ: Final = select.EPOLLIN
WRITE: Final = select.EPOLLOUT
ERROR: Final = select.EPOLLERR
FINE_SLEEP: Final = 0.001  # seconds; below it, epoll's millisecond is too coarse


class Source(Protocol):
    """Anything with a descriptor."""

    def fileno(self) -> int: ...


class Poll:
    """Level-triggered. A handler may watch and forget sources, its own too."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Handler] = {}

    def watch(self, source: Source, handler: Handler) -> None:
        """Call `handler` whenever `source` can be read."""
        self._handlers[source.fileno()] = handler
        self._epoll.register(source, READ)

    def watch_writing(self, source: Source, wanted: bool) -> None:
        """Call it also, or no longer, when `source` can be written. A no-op if not watched."""
        if source.fileno() in self._handlers:
            self._epoll.modify(source, READ | WRITE if wanted else READ)

    def forget(self, source: Source) -> None:
        """Watch it no longer; before it is closed."""
        self._epoll.unregister(source)
        del self._handlers[source.fileno()]

    def wait(self, timeout: float) -> Iterator[tuple[Handler, int]]:
        """Handlers to call now, and why; waits for at most `timeout` seconds, below 0 for ever."""
        if 0.0 < timeout < FINE_SLEEP:
            select.select([self._epoll.fileno()], [], [], timeout)
            timeout = 0.0
        for descriptor, mask in self._epoll.poll(timeout if timeout >= 0 else None):
            handler = self._handlers.get(descriptor)
            if handler is not None:  # an earlier handler of this round may have forgotten it
                yield handler, mask
