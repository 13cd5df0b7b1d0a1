"""Passes operations that peers aborted on to the engines.

When a rank is late, all others abort all open operations at about the same time, and each tells
each: 63 peers and 50 operations make 3,150 rows for every rank, of which 50 are new. So aborts are
collected, told once, and told in batches.
"""

import asyncio
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import Final

from dlcpd.core.session.stream_ids import MESSAGES
from dlcpd.daemon.engines import Engines
from dlcpd.io.commands import MAX_ABORTS, AbortedOperation, AbortOperations
from dlcpd.io.control_events import FailedOperation

# Of one session: an engine has at most 1,024 operations open and remembers aborts of 1,024 more
# that have not begun. Any further operation waits for its own deadline.
MAX_PENDING: Final = 2048
MAX_KNOWN: Final = 2 * MAX_PENDING  # the newest that engines know
LOOK_AGAIN: Final = 0.01  # seconds, while an engine is behind with its commands

_Key = tuple[int, int, int, int]  # engine; rank, for messages only; stream; operation


@dataclass(slots=True)
class Aborts:
    """Aborts of one session: those that its engines have yet to get, and those they know."""

    pending: dict[_Key, AbortedOperation] = field(default_factory=dict)
    _known: OrderedDict[_Key, None] = field(default_factory=OrderedDict)  # in order of age

    def add(self, engine: int, aborted: AbortedOperation) -> str:
        """A peer aborted an operation. Returns the counter for why no engine need know, or ""."""
        key = _key(engine, aborted.rank, aborted.stream, aborted.operation)
        if key in self.pending or key in self._known:
            return "peer_abort_again"
        if len(self.pending) >= MAX_PENDING:
            return "peer_abort_flood"
        self.pending[key] = aborted
        return ""

    def learn(self, engine: int, failed: FailedOperation) -> None:
        """An engine reported that an operation failed: it need not be told."""
        for key in {_key(engine, rank, failed.stream, failed.operation) for rank in failed.ranks}:
            self.pending.pop(key, None)
            self._remember(key)

    def take(self, engine: int) -> list[AbortedOperation]:
        """Remove the aborts that fit one command to `engine`, and return them."""
        keys = [key for key in self.pending if key[0] == engine][:MAX_ABORTS]
        for key in keys:
            self._remember(key)
        return [self.pending.pop(key) for key in keys]

    @property
    def engines(self) -> set[int]:
        """Engines that have yet to get aborts."""
        return {key[0] for key in self.pending}

    def _remember(self, key: _Key) -> None:
        self._known[key] = None
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)


class AbortQueue:
    """Passes aborts of all sessions on: at the end of an iteration of the loop, once the engine has
    room."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, engines: Engines, counters: Counter[str]
    ) -> None:
        self._loop, self._engines, self._counters = loop, engines, counters
        self._waiting: dict[int, Aborts] = {}  # by session
        self._scheduled = False

    def add(self, session: int, aborts: Aborts, engine: int, aborted: AbortedOperation) -> None:
        """A peer aborted an operation that an engine may wait for."""
        if needless := aborts.add(engine, aborted):
            self._counters[needless] += 1
            return
        self._waiting[session] = aborts
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._pass_on)

    def _pass_on(self) -> None:
        self._scheduled = False
        for session, aborts in list(self._waiting.items()):
            for engine in aborts.engines:
                while not self._engines.behind(engine) and (rows := aborts.take(engine)):
                    self._engines.send(engine, AbortOperations(session, rows))
            if not aborts.pending:
                del self._waiting[session]
        if self._waiting:
            self._scheduled = True
            self._loop.call_later(LOOK_AGAIN, self._pass_on)


def _key(engine: int, rank: int, stream: int, operation: int) -> _Key:
    return engine, (rank if stream & MESSAGES else -1), stream, operation
