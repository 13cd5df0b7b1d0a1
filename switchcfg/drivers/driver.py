"""What every driver does, in NAPALM's verbs: a commit reverts by itself unless it is confirmed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from switchcfg.errors import Busy
from switchcfg.platforms.platform import Step


@dataclass(frozen=True, slots=True)
class Pending:
    """A commit that nobody has confirmed yet."""

    who: str  # as its `Commit` says
    seconds: float  # until it reverts; 0 and less: it should have, see `problem`
    problem: str = ""  # why it could not revert


def busy(device: str, who: str) -> Busy:
    """The error for a device whose last commit nobody has confirmed."""
    return Busy(
        f"{device}: a commit is pending: {who}; it reverts by itself; `switchcfg confirm` keeps "
        "it, `switchcfg abort` reverts it now"
    )


def host_and_port(address: str, default: int) -> tuple[str, int]:
    """HOST, or HOST:PORT; an IPv6 address, with its many colons, is a host."""
    host, colon, port = address.rpartition(":")
    return (host, int(port or default)) if colon and ":" not in host else (address, default)


@dataclass(frozen=True, slots=True)
class Commit:
    """What a device shall do, and what brings it back."""

    steps: tuple[Step, ...]
    restore: str  # a script; "" where the device reverts by itself
    seconds: int  # until it reverts
    who: str  # one line, for others who find it pending
    diff: bool = False  # also ask the device what this changes


class Driver(Protocol):
    """One device. Not for use by two tasks at once.

    Every method raises Unreachable where the device does not answer in time.
    """

    async def get(self) -> str:
        """What the device says of itself, in its platform's words."""

    async def diff(self, steps: Sequence[Step]) -> str | None:
        """What the device itself says that these steps would change, in its own words; "": nothing.
        None: it has no way to say so before they are done. Nothing that runs is touched, and
        nothing is left behind.

        Raises: Busy where a commit is pending, or somebody is typing; CommitFailed where a step is
        refused.
        """

    async def commit(self, commit: Commit) -> str | None:
        """Do the steps, after the device has been told to revert. Gives what the device itself says
        that they change, where that was asked for; None: it has no way to say so.

        Raises: Busy where another commit is pending; CommitFailed where a step was refused:
        then the device has been brought back.
        """

    async def confirm(self) -> None:
        """Keep what was committed. Raises: NothingPending, where it has reverted meanwhile."""

    async def abort(self) -> None:
        """Revert now. Raises: NothingPending; CommitFailed where the device could not."""

    async def save(self) -> str:
        """Make what is confirmed outlast a restart, with all else that the device runs.

        Gives why it will not; "": it will. Raises: CommitFailed.
        """

    async def pending(self) -> Pending | None:
        """A commit that is not confirmed, or could not be reverted."""

    async def examine(self) -> Sequence[str]:
        """What keeps this device from being configured; nothing: it is ready."""

    async def close(self) -> None:
        """Let go of the connection; what is pending stays so."""
