"""All engines of a daemon: started, commanded and stopped together; number 0 is always there."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from dlcpd.daemon.engine_process import BEHIND, BUSY, ENGINE, EngineProcess
from dlcpd.daemon.engine_reports import joined
from dlcpd.io.commands import Command, EngineReady, Event
from dlcpd.io.config import EngineConfig


class Engines:
    """`on_event` gets an engine's number and event, `on_exit` the unexpected end of one."""

    def __init__(
        self,
        *,
        on_event: Callable[[int, Event], None],
        on_exit: Callable[[str], None],
        command: Sequence[str] = ENGINE,
    ) -> None:
        self._on_event, self._on_exit, self._command = on_event, on_exit, command
        self._engines: list[EngineProcess] = []
        self._listening = False

    def __len__(self) -> int:
        return len(self._engines)

    async def start(
        self, configs: Sequence[EngineConfig], environ: Mapping[str, str]
    ) -> list[EngineReady]:
        """Start one per configuration and wait for their sockets.

        Raises: DlcpError, the first engine's that could not start; none runs then.
        """
        self._engines = [
            EngineProcess(
                on_event=partial(self._on_event, number), on_exit=self._on_exit,
                command=self._command,
            )
            for number in range(len(configs))
        ]  # fmt: skip
        starts = [e.start(c, environ) for e, c in zip(self._engines, configs, strict=True)]
        found = await asyncio.gather(*starts, return_exceptions=True)
        ready = [answer for answer in found if isinstance(answer, EngineReady)]
        if len(ready) == len(found):
            return ready
        started = zip(self._engines, found, strict=True)
        self._engines = [e for e, answer in started if isinstance(answer, EngineReady)]
        await self.stop(0.0)
        raise next(answer for answer in found if isinstance(answer, BaseException))

    def send(self, engine: int, command: Command, descriptors: Sequence[int] = ()) -> None:
        """Queue a command for one engine. Takes over the descriptors."""
        self._engines[engine].send(command, descriptors)

    def send_all(self, command: Command) -> None:
        """Queue a command for every engine; those without the session it names ignore it."""
        for engine in self._engines:
            engine.send(command)

    def listen(self) -> None:
        """Take in what engines have said already, before something else is acted upon."""
        if not self._listening:  # what they said may lead here again
            self._listening = True
            try:
                for engine in self._engines:
                    engine.listen()
            finally:
                self._listening = False

    def behind(self, engine: int) -> bool:
        """Whether what can be put off should be."""
        return self._engines[engine].waiting >= BEHIND

    @property
    def busy(self) -> bool:
        """Whether one of them is too far behind for anything new."""
        return any(engine.waiting >= BUSY for engine in self._engines)

    async def report(self, ledger: int) -> dict[str, Any]:
        """What the engines know, as one report; {"error": ...} when one does not answer in time."""
        each = ledger // len(self._engines)
        return joined(await asyncio.gather(*(engine.report(each) for engine in self._engines)))

    async def trace(self, engine: int, what: str) -> dict[str, Any]:
        """How the recording of one engine stands (docs/trace.md)."""
        return await self._engines[engine].trace(what)

    async def answer(self, within: float) -> bool:
        """Whether all of them answer `within` so many seconds."""
        reports = await asyncio.gather(*(engine.report(0, within) for engine in self._engines))
        return not any("error" in report for report in reports)

    async def stop(self, drain: float) -> None:
        """End all: open operations may finish for `drain` seconds. Then they are killed."""
        await asyncio.gather(*(engine.stop(drain) for engine in self._engines))

    def kill(self) -> None:
        """End all at once."""
        for engine in self._engines:
            engine.kill()
