"""Base class of drivers for devices that cannot revert themselves: uses auto-revert scripts."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from switchcfg.drivers.auto_revert import AutoRevert
from switchcfg.drivers.driver import Commit, Pending
from switchcfg.errors import SwitchcfgError, Unreachable
from switchcfg.platforms.platform import Step


class ByAutoRevert(ABC):
    """Commit, confirm, abort and pending of `Driver`; `diff` gives None."""

    def __init__(self, auto_revert: AutoRevert) -> None:
        self._auto_revert = auto_revert

    async def diff(self, _steps: Sequence[Step]) -> str | None:
        return None

    async def commit(self, commit: Commit) -> str | None:
        restore = self._restoring(commit.restore)
        await self._run(self._auto_revert.arm(restore, commit.seconds, commit.who))
        try:
            await self._carry_out(commit)
        except Unreachable:
            raise  # the timer reverts it; an abort would not reach the device
        except SwitchcfgError:
            await self.abort()
            raise
        return None

    async def confirm(self) -> None:
        await self._run(self._auto_revert.confirm())

    async def abort(self) -> None:
        await self._run(self._auto_revert.abort())

    async def pending(self) -> Pending | None:
        lines = (await self._run(self._auto_revert.pending())).splitlines()
        return Pending(lines[0], float(lines[1]), "\n".join(lines[2:])) if lines else None

    @abstractmethod
    async def _run(self, script: str) -> str:
        """Run an auto-revert script on the host with the timer; returns its output.

        Raises: the `refusal` of its exit code.
        """

    @abstractmethod
    async def _carry_out(self, commit: Commit) -> None:
        """Run the steps on the device in order; the auto-revert is armed."""

    def _restoring(self, restore: str) -> str:
        """A platform's restore script, as the host with the timer runs it."""
        return restore
