"""Driver for devices with a POSIX shell over SSH. Needs the extra `ssh` (asyncssh).

User, key, jump host and port come from ~/.ssh/config, as for ssh(1); keys come from the agent or
from key files. Host keys are always checked.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import asyncssh

from switchcfg.drivers.auto_revert import FOLDER, RUNNING, AutoRevert, refusal
from switchcfg.drivers.by_auto_revert import ByAutoRevert
from switchcfg.drivers.driver import Commit, Target
from switchcfg.errors import Unreachable
from switchcfg.platforms.platform import Shell, ShellPlatform, Step

CONNECT_TIMEOUT: Final = 15.0  # seconds, login included
KEEPALIVE: Final = 10  # seconds; after 3 without an answer the connection counts as lost
POLL: Final = 1.0  # seconds between checks whether a long step has ended
# Root needs no sudo; other users need sudo without a password.
SHELL: Final = 'if [ "$(id -u)" = 0 ]; then exec sh -eu; else exec sudo -n sh -eu; fi'
_EXAMINE: Final = """\
for tool in setsid flock sleep grep tr date {tools}; do
    command -v $tool >/dev/null || echo "the command $tool is missing"
done
mkdir -p {folder} || echo '{folder} cannot be created'
if loginctl show 2>/dev/null | grep -qx KillUserProcesses=yes && [ -n "${{SUDO_USER:-}}" ]; then
    echo "logind ends processes at logout, so a change could not revert: set KillUserProcesses=no"
fi
"""


async def connect(name: str, config: Path | None) -> asyncssh.SSHClientConnection:
    """Log in. Raises: OSError, asyncssh.Error."""
    options: dict[str, Any] = {} if config is None else {"config": [str(config)]}
    options["keepalive_interval"] = KEEPALIVE
    async with asyncio.timeout(CONNECT_TIMEOUT):
        return await asyncssh.connect(name, **options)


class StillRunning(Exception):
    """A long step has not ended."""


class Remote:
    """Runs scripts with `sh`, over one connection that is opened on first use."""

    def __init__(self, device: str, address: str, *, config: Path | None, timeout: float) -> None:
        """`config` is read instead of ~/.ssh/config; `timeout`: seconds for one script."""
        self.device, self.address = device, address
        self._config, self._timeout = config, timeout
        self._connection: asyncssh.SSHClientConnection | None = None

    async def run(self, script: str) -> str:
        """The output of a script. Raises: Unreachable, StillRunning, the `refusal` of its code."""
        try:
            connection = await self._connect()
            # As a function: a shell whose input is cut off runs nothing, instead of a part.
            whole = f"main() {{\n{script}\n}}\nmain\n"
            done = await connection.run(SHELL, input=whole, timeout=self._timeout)
        except asyncssh.TimeoutError as exc:
            raise self.lost(f"the script did not end within {self._timeout:.0f} s") from exc
        except (OSError, asyncssh.Error) as exc:
            raise self.lost(str(exc) or type(exc).__name__) from exc
        said, complained = str(done.stdout or ""), str(done.stderr or "")
        if done.exit_status is None:
            raise self.lost("the connection broke")
        if done.exit_status == RUNNING:
            raise StillRunning(self.device)
        if done.exit_status:
            raise refusal(self.device, done.exit_status, complained + said)
        return said

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            await self._connection.wait_closed()
            self._connection = None

    async def _connect(self) -> asyncssh.SSHClientConnection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await connect(self.address, self._config)
        return self._connection

    def lost(self, why: str) -> Unreachable:
        return Unreachable(
            f"{self.device} ({self.address}): {why}; check that `ssh {self.address} true` works. "
            "A change that is not confirmed reverts by itself"
        )


class SshDriver(ByAutoRevert):
    """One device that runs the auto-revert scripts itself."""

    def __init__(self, device: str, address: str, shell: Shell, *, config: Path | None) -> None:
        """`config` is read instead of ~/.ssh/config."""
        super().__init__(AutoRevert(device))
        self._shell = shell
        self._remote = Remote(device, address, config=config, timeout=shell.timeout)

    @classmethod
    def of(cls, target: Target) -> Self:
        if not isinstance(target.platform, ShellPlatform):
            raise TypeError(f"{target.platform.name} is not a ShellPlatform")
        shell = target.platform.shell(target.intent, target.device)
        return cls(target.name, target.address, shell, config=target.ssh_config)

    async def get(self) -> str:
        return await self._run(self._shell.snapshot)

    async def ask(self, question: str) -> str:
        return await self._run(f"{question}\n")

    async def examine(self) -> Sequence[str]:
        script = _EXAMINE.format(tools=" ".join(self._shell.tools), folder=FOLDER)
        return (await self._run(script)).splitlines()

    async def close(self) -> None:
        await self._remote.close()

    async def save(self) -> str:
        if not self._shell.save:
            return (
                "the device loses its configuration at a restart: `switchcfg render` prints a "
                "start-up script"
            )
        await self._run(self._shell.save)
        return ""

    async def _carry_out(self, commit: Commit) -> None:
        for number, step in enumerate(commit.steps):
            commit.begun(number)
            script = self._shell.script(step)
            if step.minutes:
                await self._run(self._auto_revert.begin(script))
                await self._until_it_ends(step)
            else:
                await self._run(self._auto_revert.step(script))

    async def _until_it_ends(self, step: Step) -> None:
        """Wait for a long step. Raises: CommitFailed, with the step's output; Unreachable."""
        try:
            async with asyncio.timeout(60 * step.minutes):
                while True:
                    await asyncio.sleep(POLL)
                    with suppress(Unreachable, StillRunning):  # the step may cut the connection
                        await self._run(self._auto_revert.ended())
                        return
        except TimeoutError as exc:
            raise self._remote.lost(
                f"{step.title}: did not end within {step.minutes} minutes"
            ) from exc

    async def _run(self, script: str) -> str:
        return await self._remote.run(script)
