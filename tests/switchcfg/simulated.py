"""A driver for a simulated Linux switch: what a real device and a bad day may do."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from switchcfg.drivers.driver import Commit, Pending
from switchcfg.errors import Busy, CommitFailed, NothingPending, Unreachable
from switchcfg.platforms.platform import Step
from tests.switchcfg.linux_device import LinuxDevice

KINDS = ("lldp", "vtysh", "ip -j link")  # questions of neighbours, by what they name


@dataclass
class SimulatedDriver:
    device: LinuxDevice = field(default_factory=lambda: LinuxDevice(("p1", "p2")))
    refuses: str = ""  # title of the step that it does not take
    forgets: str = ""  # title of the step that it takes and does not do
    silent: str = ""  # method from which on it does not answer
    delay: float = 0.0  # seconds of each answer
    says: str | None = None  # that a change changes
    tells: dict[str, list[str]] = field(default_factory=dict)  # of KINDS: one after another
    armed: Commit | None = None
    calls: list[str] = field(default_factory=list)

    async def get(self) -> str:
        await self._called("get")
        return self.device.says()

    async def ask(self, question: str) -> str:
        await self._called("ask")
        kind = next((each for each in KINDS if each in question), "")
        if kind not in self.tells:
            raise CommitFailed(f"no such command: {question}")
        answer = self.tells[kind]
        return answer.pop(0) if len(answer) > 1 else answer[0]

    async def diff(self, steps: Sequence[Step]) -> str | None:
        await self._called("diff")
        return self.says

    async def commit(self, commit: Commit) -> str | None:
        await self._called("commit")
        if self.armed:
            raise Busy("pending")
        self.armed = commit
        for number, step in enumerate(commit.steps):
            commit.begun(number)
            if step.title == self.refuses:
                await self.abort()
                raise CommitFailed(f"refused: {step.title}")
            if step.title != self.forgets:
                self.device.do(step.payload)
        return self.says if commit.diff else None

    async def confirm(self) -> None:
        await self._called("confirm")
        if not self.armed:
            raise NothingPending("nothing")
        self.armed = None

    async def abort(self) -> None:
        await self._called("abort")
        if not self.armed:
            raise NothingPending("nothing")
        self.device.do(self.armed.restore)
        self.armed = None

    async def save(self) -> str:
        await self._called("save")
        return ""

    async def pending(self) -> Pending | None:
        await self._called("pending")
        return Pending(self.armed.who, self.armed.seconds) if self.armed else None

    async def examine(self) -> Sequence[str]:
        await self._called("examine")
        return ()

    async def close(self) -> None:
        self.calls.append("close")

    async def _called(self, name: str) -> None:
        self.calls.append(name)
        await asyncio.sleep(self.delay)
        if name == self.silent:
            raise Unreachable("no answer")
