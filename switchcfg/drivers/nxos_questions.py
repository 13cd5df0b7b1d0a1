"""Questions to an NX-OS switch over NX-API, and its answers as values."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from switchcfg.errors import CommitFailed
from switchcfg.plan.masking import masked

OLDEST: Final = (10, 2)
CHECKPOINTS: Final = 10  # user checkpoints that a switch can keep
NAME: Final = "switchcfg"  # of the job, its schedule, and the checkpoint that it restores
LOCK: Final = "switchcfg-lock"  # a checkpoint: its name is unique, its description is `who`
DIFF: Final = f"show diff rollback-patch checkpoint {NAME} running-config"
WHEN: Final = "%Y:%m:%d:%H:%M"
_CLOCK: Final = re.compile(r"(\d+:\d\d:\d\d)(?:\.\d+)? \S+ \w{3} (\w{3}) +(\d+) (\d{4})")
_VERSION: Final = re.compile(r"NXOS: version (\d+)\.(\d+)")
_REFUSED: Final = re.compile(r"^\s*(?:ERROR|Error|%).*", re.MULTILINE)
_EMPTY: Final = re.compile(r"Rollback Patch is Empty\.?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Found:
    """A commit of switchcfg, as found on a switch."""

    who: str
    armed: bool  # has a schedule; without one nothing was done, or all was confirmed
    seconds: float = 0.0  # until it reverts
    status: str = ""  # of the job, once it has run

    @property
    def reverted(self) -> bool:
        return "success" in self.status.lower()

    @property
    def problem(self) -> str:
        if not self.armed:
            return (
                "it has no timer: nothing was changed, or all was confirmed; `switchcfg abort` "
                "clears it"
            )
        return f"its rollback ended with {self.status!r}" if self.status else ""


def say(switch: Any, *commands: str) -> list[str]:
    """The output of each command, in one request; the switch stops at the first refused command.

    Raises: NXAPICommandError; CommitFailed for a refusal that only the text of an answer shows.
    """
    answers = [answer["result"] or "" for answer in switch.show_list(list(commands), raw_text=True)]
    for command, said in zip(commands, answers, strict=True):
        if not command.startswith("show ") and (wrong := _REFUSED.search(said)):
            raise CommitFailed(f"the device refused `{command}`: {masked(wrong[0].strip())}")
    return answers


def running(switch: Any) -> str:
    """The running configuration, without comments, which hold the time of the request."""
    [said] = say(switch, "show running-config")
    lines = (line for line in said.splitlines() if not line.startswith("!"))
    return "".join(f"{line}\n" for line in lines)


def patch_of(switch: Any) -> str:
    """The commands from the checkpoint to the running configuration. Raises: CommitFailed."""
    [said] = say(switch, DIFF)
    _, found, patch = said.partition("Generating Rollback Patch")
    if not found and not _EMPTY.search(said):
        raise CommitFailed(f"`{DIFF}` does not print a patch: {masked(said.strip())}")
    lines = (line.rstrip() for line in patch.splitlines())
    return "\n".join(
        line for line in lines if line and line[0] not in "!." and not _EMPTY.fullmatch(line)
    )


def scheduled(switch: Any, who: str, clock: str) -> Found:
    """The pending commit by the schedule on the switch. `clock`: output of `show clock`."""
    config, told = say(switch, "show scheduler config", "show scheduler schedule")
    until = re.search(rf"scheduler schedule name {NAME}\s.*?time start (\S+)", config, re.DOTALL)
    if until is None:
        return Found(who, armed=False)
    left = (time_of(until[1][:16], WHEN) - clock_of(clock)).total_seconds()
    status = re.search(rf"^\s*{NAME}\s+(\S.*?)\s*$", told, re.MULTILINE)
    ran = status[1] if status and status[1] != "-NA-" else ""
    return Found(who, armed=True, seconds=left, status=ran)


def clock_of(said: str) -> datetime:
    """The switch's clock from the output of `show clock`. Raises: ValueError."""
    found = _CLOCK.search(said)
    if found is None:
        raise ValueError(f"`show clock` prints {said.strip()!r}, which is not a time")
    return time_of(" ".join(found.groups()), "%H:%M:%S %b %d %Y")


def time_of(text: str, form: str) -> datetime:
    """A time in the switch's own zone, marked as UTC: only such times are compared."""
    return datetime.strptime(text, form).replace(tzinfo=UTC)


def complaints(switch: Any, user: str) -> Iterator[str]:
    """Reasons why a change could not be made, or could not revert by itself."""
    commands = ("show version", "show feature", "show checkpoint summary", "show user-account")
    version, features, checkpoints, accounts = say(switch, *commands)
    found = _VERSION.search(version)
    if found is None or (int(found[1]), int(found[2])) < OLDEST:
        yield (
            f"NX-OS {'.'.join(found.groups()) if found else 'of no known version'}: switchcfg "
            "needs 10.2 or later"
        )
    if not re.search(r"^scheduler\s+\d+\s+enabled", features, re.MULTILINE):
        yield "`feature scheduler` is off, so the switch could not revert a change: turn it on"
        return
    kept = re.findall(r"^\d+\) (?!system-)(\S+):", checkpoints, re.MULTILINE)
    if LOCK not in kept and len(kept) > CHECKPOINTS - 2:
        yield (
            f"{len(kept)} of {CHECKPOINTS} checkpoints are in use, and switchcfg needs two: `no "
            "checkpoint NAME` removes one"
        )
    account = re.search(
        rf"^user:{re.escape(user)}$(.*?)(?=^user:|\Z)", accounts, re.DOTALL | re.MULTILINE
    )
    if account and "REMOTE authentication" in account[1]:
        [config] = say(switch, "show scheduler config")
        if f"scheduler aaa-authentication username {user} " not in config:
            yield (
                f"user {user} exists only on an AAA server, and the scheduler runs jobs of such "
                f"a user only with `scheduler aaa-authentication username {user} password ...`"
            )
