"""Log lines about peers and paths, summed up: one cut cable is news of every rank about every
rank."""

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Final

GATHER: Final = 1.0  # seconds after the first line in which alike news become one line
REST: Final = 30.0  # seconds between further lines of alike news
MAX_ALIKE: Final = 4096  # kinds of news at a time; beyond them each has its line
Tell = Callable[..., None]


@dataclass(slots=True)
class _Alike:
    """News of one key since the last line."""

    more: int = 0
    tell: Tell | None = None
    event: str = ""
    fields: dict[str, Any] = field(default_factory=dict)  # of the latest


class NewsLog:
    """The first news of a key is a line at once. Alike ones follow as one line with their `count`,
    after GATHER seconds and then every REST seconds, until none came for REST seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._known: dict[Hashable, _Alike] = {}

    def tell(self, tell: Tell, event: str, alike: Hashable, **fields: Any) -> None:
        """Log an event through `tell`, log.info or another; `alike` and the event are the key."""
        key = event, alike
        known = self._known.get(key)
        if known is not None:
            known.more += 1
            known.tell, known.event, known.fields = tell, event, fields
            return
        tell(event, **fields)
        if len(self._known) < MAX_ALIKE:
            self._known[key] = _Alike()
            self._loop.call_later(GATHER, self._sum_up, key)

    def close(self) -> None:
        """Log what has not been logged: the daemon ends."""
        for known in self._known.values():
            self._line(known)

    def _sum_up(self, key: Hashable) -> None:
        self._line(self._known[key])
        self._loop.call_later(REST, self._go_on, key)

    def _go_on(self, key: Hashable) -> None:
        if self._known[key].more:
            self._sum_up(key)
        else:
            del self._known[key]

    @staticmethod
    def _line(known: _Alike) -> None:
        count, known.more = known.more, 0
        if known.tell and count:
            known.tell(known.event, **known.fields, count=count)
