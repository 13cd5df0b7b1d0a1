"""All engines of a daemon: started, commanded and stopped together; number 0 is always there.

An engine that ends is replaced (engine_slot.py); the others go on.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dlcpd.daemon.engine_process import BEHIND, BUSY, ENGINE
from dlcpd.daemon.engine_reports import joined
from dlcpd.daemon.engine_slot import EngineCallbacks, EngineSlot, SlotState
from dlcpd.io.commands import Command, UdpAddress
from dlcpd.io.config import EngineConfig
from dlcpd.io.control_events import EngineReady, Event


class Engines:
    """`on_event` gets an engine's number and event; `on_exit` its number, and how it ended
    unexpectedly; `on_change` its number when it is up again, or fails."""

    def __init__(
        self,
        *,
        on_event: Callable[[int, Event], None],
        on_exit: Callable[[int, str], None],
        on_change: Callable[[int], None] = lambda _: None,
        command: Sequence[str] = ENGINE,
    ) -> None:
        self._news, self._command = EngineCallbacks(on_event, on_exit, on_change), command
        self._slots: list[EngineSlot] = []
        self._listening = False

    def __len__(self) -> int:
        return len(self._slots)

    async def start(
        self, configs: Sequence[EngineConfig], environ: Mapping[str, str]
    ) -> list[EngineReady]:
        """Start one engine per configuration and wait for their sockets.

        Raises: DlcpError, OSError of the first engine that could not start; then none runs.
        """
        self._slots = [
            EngineSlot(number, self._news, self._command) for number in range(len(configs))
        ]
        starts = [slot.start(c, environ) for slot, c in zip(self._slots, configs, strict=True)]
        found = await asyncio.gather(*starts, return_exceptions=True)
        ready = [answer for answer in found if isinstance(answer, EngineReady)]
        if len(ready) == len(found):
            return ready
        await self.stop(0.0)
        raise next(answer for answer in found if isinstance(answer, BaseException))

    def choose(self, count: int, load: Counter[int]) -> tuple[int, ...]:
        """Engines for a new job, ascending: the `count` (0: all) with the least `load`, without
        those in state FAILING. Empty if all are."""
        usable = [slot.number for slot in self._slots if slot.state is not SlotState.FAILING]
        usable.sort(key=lambda number: (load[number], number))
        return tuple(sorted(usable[: count or len(usable)]))

    def endpoints(self, engine: int) -> list[UdpAddress]:
        """UDP addresses of an engine, one per path."""
        return self._slots[engine].endpoints

    @property
    def addresses(self) -> list[UdpAddress]:
        """UDP addresses of all engines, in the order of their numbers."""
        return [end for slot in self._slots for end in slot.endpoints]

    def state(self, engine: int) -> SlotState:
        """State of an engine's slot."""
        return self._slots[engine].state

    def conditions(self, engines: Sequence[int]) -> str:
        """For errors: the problems of these engines; empty if all serve."""
        return "; ".join(filter(None, (self._slots[engine].condition for engine in engines)))

    def send(self, engine: int, command: Command, descriptors: Sequence[int] = ()) -> None:
        """Queue a command for one engine. Takes over the descriptors."""
        self._slots[engine].send(command, descriptors)

    def send_all(self, command: Command) -> None:
        """Queue a command for every engine; those without the session it names ignore it."""
        for slot in self._slots:
            slot.send(command)

    def listen(self) -> None:
        """Handle the engines' packets that have already arrived, before the caller goes on."""
        if not self._listening:  # a packet's handler may call this again
            self._listening = True
            try:
                for slot in self._slots:
                    if slot.process:
                        slot.process.listen()
            finally:
                self._listening = False

    def behind(self, engine: int) -> bool:
        """Whether commands to an engine that can be deferred should be."""
        process = self._slots[engine].process
        return process is not None and process.waiting >= BEHIND

    @property
    def busy(self) -> bool:
        """Whether an engine is too far behind for a new session."""
        return any(slot.process.waiting >= BUSY for slot in self._slots if slot.process)

    async def report(self, ledger: int) -> dict[str, Any]:
        """The engines' reports as one; its "error" names engines that did not answer in time."""
        each = ledger // len(self._slots)
        numbers = [slot.number for slot in self._slots if slot.process]
        asked = (slot.process.report(each) for slot in self._slots if slot.process)
        answers = dict(zip(numbers, await asyncio.gather(*asked), strict=True))
        failing = {
            slot.number: {"error": slot.condition}
            for slot in self._slots
            if slot.state is SlotState.FAILING
        }
        return joined(answers | failing, of=len(self._slots))

    @property
    def failing(self) -> str:
        """For readers of health: the engines that end again and again; empty while one serves."""
        known = [slot.condition for slot in self._slots if slot.state is SlotState.FAILING]
        return "; ".join(known) if len(known) == len(self._slots) else ""

    def states(self) -> list[dict[str, Any]]:
        """State of each engine, for the status report."""
        return [slot.report() for slot in self._slots]

    async def trace(self, engine: int, what: str) -> dict[str, Any]:
        """State of one engine's recording (docs/trace.md)."""
        slot = self._slots[engine]
        if slot.process is None:
            return {"error": slot.condition}
        return await slot.process.trace(what)

    async def answer(self, within: float) -> bool:
        """Whether all engines that are up answer `within` seconds. An engine that is down is being
        replaced: no reason to end the others."""
        up = [slot.process for slot in self._slots if slot.process]
        return all(await asyncio.gather(*(engine.answers(within) for engine in up)))

    @property
    def asleep(self) -> bool:
        """Whether each engine that is up would answer: see EngineProcess.asleep."""
        return all(slot.process.asleep for slot in self._slots if slot.process)

    async def replace(self, configs: Sequence[EngineConfig]) -> None:
        """No session is open: end each engine, and begin to start one with another configuration.
        Joins wait for it from now on."""
        for slot, config in zip(self._slots, configs, strict=True):
            slot.retire(config)
        await asyncio.gather(*(slot.replace() for slot in self._slots))

    async def stop(self, drain: float) -> None:
        """End all: open operations may finish for `drain` seconds. Then they are killed."""
        await asyncio.gather(*(slot.stop(drain) for slot in self._slots))

    def kill(self) -> None:
        """End all at once."""
        for slot in self._slots:
            slot.kill()
