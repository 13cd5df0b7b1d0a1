"""Supervises one engine: starts its process, and a new one after it has ended."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final

from dlcpd.contract.errors import DaemonLost, DlcpError
from dlcpd.daemon import log
from dlcpd.daemon.engine_process import ENGINE, EngineProcess
from dlcpd.daemon.process_usage import usage
from dlcpd.io.commands import Command, UdpAddress
from dlcpd.io.config import EngineConfig
from dlcpd.io.control_events import EngineReady, Event
from dlcpd.ipc.seqpacket import close_all

# Seconds. An engine that lived for less "ended at once": the next one starts after a delay.
SHORT_LIFE: Final = 30.0
FIRST_DELAY: Final = 0.1  # seconds, doubled for each further engine that ended at once
MAX_DELAY: Final = 30.0  # seconds; the engine takes a second of CPU to start
# Engines in a row that ended at once: new sessions do not wait for the next one, 6 s later.
FAILING: Final = 7


class SlotState(Enum):
    """State of an engine's slot."""

    UP = "up"
    STARTING = "starting"  # a new engine is being started
    FAILING = "failing"  # likewise, after FAILING engines that ended at once


@dataclass(frozen=True, slots=True)
class EngineCallbacks:
    """Callbacks of the daemon; each gets the engine's number first."""

    event: Callable[[int, Event], None]
    ended: Callable[[int, str], None]  # unexpectedly; the text says how
    changed: Callable[[int], None]  # it is up, or failing


def delay_after(short_lives: int) -> float:
    """Seconds until a new engine starts, after `short_lives` in a row ended at once."""
    return min(FIRST_DELAY * 2.0 ** (short_lives - 1), MAX_DELAY) if short_lives else 0.0


class EngineSlot:
    """Owns the process. Until `stop`, an engine that ends is replaced by one with the same
    configuration; its UDP ports may differ."""

    def __init__(self, number: int, news: EngineCallbacks, command: Sequence[str] = ENGINE) -> None:
        self.number = number
        self.state = SlotState.STARTING
        self.restarts = 0
        self.reason = ""  # why the last engine ended
        self.ready = EngineReady([], {})  # of the newest engine
        self._news, self._command = news, command
        self._config: EngineConfig
        self._environ: Mapping[str, str]
        self._process: EngineProcess | None = None
        self._starting: asyncio.Task[None] | None = None
        self._started_at = 0.0  # loop time
        self._short_lives = 0

    async def start(self, config: EngineConfig, environ: Mapping[str, str]) -> EngineReady:
        """Start the first engine. Raises: DlcpError, OSError; then no other is started."""
        self._config, self._environ = config, environ
        await self._begin()
        return self.ready

    @property
    def process(self) -> EngineProcess | None:
        """The engine; None while none serves."""
        return self._process if self.state is SlotState.UP else None

    @property
    def endpoints(self) -> list[UdpAddress]:
        """Where peers reach the engine, one for each path."""
        return self.ready.endpoints

    def send(self, command: Command, descriptors: Sequence[int] = ()) -> None:
        """Queue a command. Takes over the descriptors. Without an engine the command is dropped:
        then no session is open here."""
        if self.process is None:
            close_all(descriptors)
        else:
            self.process.send(command, descriptors)

    @property
    def condition(self) -> str:
        """For errors: why there is no engine; empty while there is one."""
        if self.state is SlotState.UP:
            return ""
        how = "is being started again"
        if self.state is SlotState.FAILING:
            wait = delay_after(self._short_lives)
            how = f"ended {self._short_lives} times at once; the next one starts within {wait:g} s"
        return f"engine {self.number} {how} ({self.reason})"

    def report(self) -> dict[str, Any]:
        """The engine's fields in the status report (docs/ipc.md)."""
        pid = self.process.pid if self.process else 0
        cpu, resident = usage(pid)
        return {
            "state": self.state.value,
            "pid": pid,
            "cpu_seconds": cpu,
            "resident_bytes": resident,
            "restarts": self.restarts,
            "last_end": self.reason,
        }

    async def stop(self, drain: float) -> None:
        """End it for good: open operations may finish for `drain` seconds."""
        if self._starting:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        if self._process:
            await self._process.stop(drain)

    def retire(self, config: EngineConfig) -> None:
        """No session is open: the next engine has `config`. `replace` follows."""
        self._config, self.state, self._short_lives = config, SlotState.STARTING, 0

    async def replace(self) -> None:
        """End the engine, and begin to start the next one."""
        await self.stop(0.0)
        self._process = None
        self._starting = asyncio.get_running_loop().create_task(self._start_next())

    def kill(self) -> None:
        """End it at once, and start no other."""
        if self._starting:
            self._starting.cancel()
        if self._process:
            self._process.kill()

    async def _begin(self) -> None:
        """Raises: DlcpError, OSError."""
        process = EngineProcess(
            on_event=partial(self._news.event, self.number),
            on_exit=self._ended,
            command=self._command,
        )
        self.ready = await process.start(self._config, self._environ)
        self._process, self.state = process, SlotState.UP
        self._started_at = asyncio.get_running_loop().time()

    def _ended(self, text: str) -> None:
        self._process = None
        self._note_end(text)
        log.error("engine_lost", engine=self.number, code=DaemonLost.code, text=text)
        self._news.ended(self.number, text)
        self._starting = asyncio.get_running_loop().create_task(self._start_again())

    def _note_end(self, text: str) -> None:
        lived = asyncio.get_running_loop().time() - self._started_at
        self._short_lives = self._short_lives + 1 if lived < SHORT_LIFE else 0
        self.state = SlotState.FAILING if self._short_lives >= FAILING else SlotState.STARTING
        self.reason = text

    async def _start_again(self) -> None:
        await self._until_up()
        self.restarts += 1
        log.info("engine_restarted", engine=self.number, restarts=self.restarts)
        self._news.changed(self.number)

    async def _start_next(self) -> None:
        await self._until_up()
        self._news.changed(self.number)

    async def _until_up(self) -> None:
        while self.state is not SlotState.UP:
            if self.state is SlotState.FAILING:
                log.error(
                    "engine_failing", engine=self.number, code=DaemonLost.code, text=self.condition
                )
                self._news.changed(self.number)
            await asyncio.sleep(delay_after(self._short_lives))
            self.state = SlotState.STARTING  # joins wait for it from now on
            self._started_at = asyncio.get_running_loop().time()
            try:
                await self._begin()
            except (DlcpError, OSError) as exc:
                self._note_end(str(exc))
