"""Recordings of operations' events (docs/trace.md): by one connection at a time."""

import asyncio
from typing import Any

from dlcpd.contract.errors import BadMessage, TooMany
from dlcpd.contract.inquiries import TraceRequest
from dlcpd.daemon.engines import Engines


class Tracing:
    """Connections' requests for recordings. A recording ends with the connection that began it."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._owner: object = None
        self._ending: asyncio.Task[None] | None = None

    async def ask(self, who: object, request: TraceRequest) -> dict[str, Any]:
        """Pass a connection's request on; returns the state of the recording.

        Raises: TooMany, BadMessage.
        """
        self._check(who, request)
        self._owner = who
        return await self._engines.trace(request.engine, request.what)

    def _check(self, who: object, request: TraceRequest) -> None:
        if request.engine >= len(self._engines):
            raise BadMessage(f"there is no engine {request.engine}, only {len(self._engines)}")
        if self._owner not in (None, who):
            raise TooMany("somebody else records a trace of this daemon: try again when it is done")
        if self._owner is None and request.what != "start":
            raise BadMessage(f"nothing is recorded that one could {request.what}")

    def release(self, who: object) -> None:
        """A connection is closed: forget its recording."""
        if self._owner is who:
            self._owner = None
            self._ending = asyncio.get_running_loop().create_task(self._forget())

    async def _forget(self) -> None:
        for engine in range(len(self._engines)):
            await self._engines.trace(engine, "forget")
