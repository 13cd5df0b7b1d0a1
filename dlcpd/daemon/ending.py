"""The end of a daemon: on a signal; of a private daemon, with its trainer."""

import asyncio
import os
import signal
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from dlcpd.contract.errors import DaemonLost
from dlcpd.daemon import log
from dlcpd.daemon.engines import Engines

T = TypeVar("T")
PARENT_POLL: Final = 1.0  # seconds; an embedded daemon outlives its trainer by no more


class Ending:
    """`wait` until the end is requested, then `drain`."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._hurried = asyncio.Event()  # requested again: end at once

    async def wait(self) -> None:
        """Wait until the end is requested."""
        await self._asked.wait()

    async def unless_asked(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of `work`, and its errors; None: the end was requested first, and `work` is
        cancelled."""
        task = asyncio.ensure_future(work)
        asked = asyncio.ensure_future(self._asked.wait())
        await asyncio.wait((task, asked), return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return None
        return task.result()

    def ask(self) -> None:
        """Request the end: nothing is left to serve."""
        self._asked.set()

    def on_signal(self, *, embedded: bool) -> None:
        """First signal: drain. Second: end at once. A private daemon ends with its trainers
        only."""
        if embedded:
            return
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number.name)

    def with_parent(self, parent: int) -> None:
        """End when the trainer ends: a worker that it forked may keep the session socket open."""
        if os.getppid() != parent:
            log.info("parent_gone", pid=parent)
            self._asked.set()
        elif not self._asked.is_set():
            asyncio.get_running_loop().call_later(PARENT_POLL, self.with_parent, parent)

    async def drain(self, engines: Engines, seconds: float) -> None:
        """End the engines: open operations may finish for `seconds`, or until a second request."""
        stop = asyncio.ensure_future(engines.stop(seconds))
        hurry = asyncio.ensure_future(self._hurried.wait())
        await asyncio.wait((stop, hurry), return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        engines.kill()
        await stop

    def error(self, host: str) -> DaemonLost:
        """The error for clients that are still connected."""
        return DaemonLost(f"dlcpd on {host} was stopped")

    def _signalled(self, name: str) -> None:
        log.info("signal", name=name)
        if self._asked.is_set():
            self._hurried.set()
        self._asked.set()
