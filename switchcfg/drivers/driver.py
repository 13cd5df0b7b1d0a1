"""Interface of all drivers, with NAPALM's verbs: a commit reverts unless it is confirmed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from switchcfg.errors import Busy
from switchcfg.intent.intent import Device, Intent
from switchcfg.platforms.platform import Platform, Step


@dataclass(frozen=True, slots=True)
class Pending:
    """A commit that is not confirmed yet."""

    who: str  # `who` of its `Commit`
    seconds: float  # until it reverts; at most 0: overdue, see `problem`
    problem: str = ""  # why it could not revert


def busy(device: str, who: str) -> Busy:
    """The error for a device with a pending commit."""
    return Busy(
        f"{device}: a commit is pending: {who}; it reverts by itself; `switchcfg confirm` keeps "
        "it, `switchcfg abort` reverts it now"
    )


def host_and_port(address: str, default: int) -> tuple[str, int]:
    """Split HOST or HOST:PORT; an address with several colons is an IPv6 host."""
    host, colon, port = address.rpartition(":")
    return (host, int(port or default)) if colon and ":" not in host else (address, default)


@dataclass(frozen=True, slots=True)
class Commit:
    """The steps for a device, and their undo."""

    steps: tuple[Step, ...]
    restore: str  # a script; "" where the device reverts by itself
    seconds: int  # until it reverts
    who: str  # one line: identifies the commit to other users while it is pending
    diff: bool = False  # also ask the device for its diff
    begun: Callable[[int], None] = lambda _: None  # called with the number of each step, from 0 on


@dataclass(frozen=True, slots=True)
class Target:
    """A device, and all that a driver needs to reach it. Drivers have a class method `of(target)`,
    which raises Unreachable if the environment lacks the login."""

    intent: Intent
    device: Device
    platform: Platform
    ssh_config: Path | None  # None: ~/.ssh/config
    pending: Path  # folder for notes of pending commits

    @property
    def name(self) -> str:
        return self.device.name

    @property
    def address(self) -> str:
        return self.device.address or self.device.name


class Driver(Protocol):
    """One device. Not safe for concurrent use by two tasks.

    Every method raises Unreachable if the device does not answer in time.
    """

    async def get(self) -> str:
        """The device's configuration, as `Platform.read` takes it."""

    async def ask(self, question: str) -> str:
        """The answer to a question of `switchcfg.fabric.questions`, as its reader takes it.

        Raises: CommitFailed if the device refuses the question; BadState.
        """

    async def diff(self, steps: Sequence[Step]) -> str | None:
        """The device's own diff for these steps; "": no change. None: the device has no diff before
        a commit. The running configuration is not changed, and no candidate remains.

        Raises: Busy if a commit is pending or another user edits the candidate; CommitFailed if a
        step is refused.
        """

    async def commit(self, commit: Commit) -> str | None:
        """Arm the auto-revert, then run the steps. Returns the device's own diff if `commit.diff`
        is set; None: no diff.

        Raises: Busy if another commit is pending; CommitFailed if a step was refused: then the
        device has been rolled back.
        """

    async def confirm(self) -> None:
        """Keep the commit. Raises: NothingPending if it has reverted."""

    async def abort(self) -> None:
        """Revert now. Raises: NothingPending; CommitFailed if the device could not revert."""

    async def save(self) -> str:
        """Write the whole running configuration to the startup configuration.

        Returns why the changes will not survive a restart; "": they will. Raises: CommitFailed.
        """

    async def pending(self) -> Pending | None:
        """The commit that is not confirmed, or could not be reverted."""

    async def examine(self) -> Sequence[str]:
        """Reasons why this device cannot be configured; empty: it is ready."""

    async def close(self) -> None:
        """Close the connection; a pending commit stays pending."""
