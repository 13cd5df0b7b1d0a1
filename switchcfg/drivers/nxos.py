"""Cisco NX-OS over NX-API, by NAPALM's client of it. Needs the extra `nxos` (napalm).

NX-OS has checkpoints to go back to, and for single lines no timer that does. Its scheduler is the
timer: a job on the switch that rolls back, so it does not matter what becomes of us. It counts in
minutes of the switch's own clock: a change lasts about a minute longer than was asked for. What is
pending is all on the switch, so any host sees whose it is, and may confirm it.

NX-OS goes on after a line that it refuses, and what was typed before is in force: every line's
answer is read, and after a refusal all of them are taken back.

Who logs in comes from the environment: see `switchcfg.drivers.login`, kind NXOS. Sources: Cisco
Nexus 9000 NX-OS 10.x, "Programmability Guide" (NX-API CLI) and "System Management Configuration
Guide" ("Configuring Rollback", "Configuring the Scheduler").
"""

import asyncio
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from napalm.nxapi_plumbing import Device as NxApi
from napalm.nxapi_plumbing.errors import NXAPIAuthError, NXAPICommandError, NXAPIError

from switchcfg.drivers.driver import Commit, Pending, busy, host_and_port
from switchcfg.drivers.login import Login, prefix
from switchcfg.errors import Busy, CommitFailed, NothingPending, Unreachable
from switchcfg.platforms.platform import Step

TIMEOUT: Final = 300  # seconds for one request; a rollback of a large configuration takes minutes
PORT: Final = 443
KIND: Final = "NXOS"  # of login
OLDEST: Final = (10, 2)
CHECKPOINTS: Final = 10  # that a switch keeps of its users'
MARGIN: Final = 5.0  # seconds before a rollback in which it is too late to confirm
WHO: Final = 80  # characters of a checkpoint's description
NAME: Final = "switchcfg"  # of the job, of its schedule, and of the checkpoint that it goes back to
LOCK: Final = "switchcfg-lock"  # a checkpoint: its name is given once, its description says who
BACK: Final = f"rollback running-config checkpoint {NAME} atomic"
DIFF: Final = f"show diff rollback-patch checkpoint {NAME} running-config"
CLEAR: Final = (
    "configure terminal",
    f"no scheduler schedule name {NAME}",
    f"no scheduler job name {NAME}",
    "end",
    f"no checkpoint {NAME}",
    f"no checkpoint {LOCK}",
)
WHEN: Final = "%Y:%m:%d:%H:%M"
_CLOCK: Final = re.compile(r"(\d+:\d\d:\d\d)(?:\.\d+)? \S+ \w{3} (\w{3}) +(\d+) (\d{4})")
_VERSION: Final = re.compile(r"NXOS: version (\d+)\.(\d+)")
_REFUSED: Final = re.compile(r"^\s*(?:ERROR|Error|%).*", re.MULTILINE)
_EMPTY: Final = re.compile(r"Rollback Patch is Empty\.?", re.IGNORECASE)
_BACK: Final = re.compile(r"Rollback completed successfully|Rollback Patch is Empty", re.IGNORECASE)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Found:
    """What a switch says of a commit of switchcfg's."""

    who: str
    armed: bool  # is there a schedule? Without one nothing was done, or all was confirmed
    seconds: float = 0.0  # until it goes back
    status: str = ""  # of the job, once it has run

    @property
    def reverted(self) -> bool:
        return "success" in self.status.lower()

    @property
    def problem(self) -> str:
        if not self.armed:
            return "without a timer: never begun, or confirmed; `switchcfg abort` clears it away"
        return f"its rollback ended with {self.status!r}" if self.status else ""


class NxosDriver:
    """NX-API keeps no connection."""

    def __init__(self, device: str, address: str, *, login: Login) -> None:
        self.device, self.address = device, address
        self._login = login

    async def get(self) -> str:
        return await self._call(_running)

    async def diff(self, _steps: Sequence[Step]) -> str | None:
        return None  # there is no candidate

    async def commit(self, commit: Commit) -> str | None:
        return await self._call(lambda switch: self._commit(switch, commit))

    def _commit(self, switch: Any, commit: Commit) -> str | None:
        if complaints := list(_complaints(switch, self._login.user)):
            raise CommitFailed(f"{self.device}: {'; '.join(complaints)}")
        if (found := self._look(switch)) is not None:
            raise busy(self.device, " ".join(filter(None, (found.who, found.problem))))
        ends = time.monotonic() + commit.seconds
        self._arm(switch, commit)
        try:
            for section in _sections(commit):
                if time.monotonic() > ends:  # what came after the rollback would stay
                    raise CommitFailed(f"{self.device}: time ran out before all was done")
                _say(switch, "configure terminal", *section)
            return _patch(switch) if commit.diff else None
        except (NXAPICommandError, CommitFailed):
            self._back(switch)
            raise

    def _arm(self, switch: Any, commit: Commit) -> None:
        """One request, which the switch ends even if we do not."""
        [clock] = _say(switch, "show clock")
        # Rounded up: what was asked for is the least time in which it can be confirmed.
        until = _clock(clock) + timedelta(seconds=commit.seconds + MARGIN + 59)
        who = re.sub(r"[^\w.@:-]+", " ", commit.who)[:WHO]
        try:
            _say(switch, f"checkpoint {LOCK} description {who}")
        except (NXAPICommandError, CommitFailed) as exc:
            raise Busy(f"{self.device}: somebody else begins, or: {exc}") from exc
        try:
            _say(
                switch,
                "configure terminal",
                f"scheduler job name {NAME}",
                BACK,
                "end-job",
                f"scheduler schedule name {NAME}",
                f"job name {NAME}",
                f"time start {until.strftime(WHEN)}",
                "end",
                # With the schedule in it: a rollback must not take away the job that does it.
                f"checkpoint {NAME}",
            )
        except (NXAPICommandError, CommitFailed):
            _clear(switch)
            raise

    async def confirm(self) -> None:
        def confirm(switch: Any) -> None:
            found = self._mine(switch)
            if found.seconds < MARGIN:
                raise Busy(f"{self.device}: is being reverted at this moment; ask again")
            _say(switch, *CLEAR)

        await self._call(confirm)

    async def abort(self) -> None:
        def abort(switch: Any) -> None:
            found = self._look(switch)
            if found is not None and not found.armed:
                _clear(switch)
            self._mine(switch)
            self._back(switch)

        await self._call(abort)

    def _mine(self, switch: Any) -> Found:
        found = self._look(switch)
        if found is None or not found.armed:
            raise NothingPending(f"{self.device}: nothing is pending, or it has reverted since")
        return found

    def _back(self, switch: Any) -> None:
        """Now. What could not be rolled back stays pending, and says so."""
        [said] = _say(switch, BACK)
        if not _BACK.search(said):
            raise CommitFailed(f"{self.device}: not rolled back: {said.strip()}")
        _say(switch, *CLEAR)

    async def save(self) -> str:
        [said] = await self._call(lambda switch: _say(switch, "copy running-config startup-config"))
        if "Copy complete" not in said:
            raise CommitFailed(f"{self.device}: not saved: {said.strip()}")
        return ""

    async def pending(self) -> Pending | None:
        found = await self._call(self._look)
        return Pending(found.who, found.seconds, found.problem) if found is not None else None

    async def examine(self) -> Sequence[str]:
        return await self._call(lambda switch: list(_complaints(switch, self._login.user)))

    async def close(self) -> None:
        """There is nothing to let go of."""

    def _look(self, switch: Any) -> Found | None:
        """What is there of a commit; what has gone back is cleared away."""
        clock, checkpoints = _say(switch, "show clock", "show checkpoint summary")
        lock = re.search(
            rf"^\d+\) {LOCK}:(.*?)(?=^\d+\)|\Z)", checkpoints, re.DOTALL | re.MULTILINE
        )
        if lock is None:
            return None
        named = re.search(r"Description: *(.*)", lock[1])
        found = _scheduled(switch, named[1].strip() if named else "an unknown commit", clock)
        if found.reverted:
            _say(switch, *CLEAR)
            return None
        return found

    async def _call(self, what: Callable[[Any], T]) -> T:
        return await asyncio.to_thread(self._do, what)

    def _do(self, what: Callable[[Any], T]) -> T:
        try:
            return what(self._api())
        except NXAPICommandError as exc:
            raise CommitFailed(
                f"{self.device}: refused: {exc.command}: {exc.message.strip()}"
            ) from exc
        except NXAPIAuthError as exc:
            raise self._lost(f"refuses who logs in: {prefix(KIND)}USER and _PASSWORD") from exc
        except (NXAPIError, OSError) as exc:
            raise self._lost(f"{exc}; is `feature nxapi` on, with HTTPS?") from exc
        except (ValueError, LookupError, TypeError, AttributeError) as exc:
            raise self._lost(f"what answers is not NX-API ({exc})") from exc

    def _lost(self, why: str) -> Unreachable:
        return Unreachable(f"{self.device} ({self.address}): {why}")

    def _api(self) -> Any:
        login = self._login
        if login.cert:
            raise self._lost(f"{prefix(KIND)}CERT: NX-API is asked with a user and a password")
        host, port = host_and_port(self.address, PORT)
        where = f"[{host}]" if ":" in host else host
        return NxApi(
            where,
            login.user,
            login.password,
            transport="https",
            port=port,
            timeout=TIMEOUT,
            verify=login.ca,
        )


def _say(switch: Any, *commands: str) -> list[str]:
    """What each says, in one request; the switch stops at the first that it refuses.

    Raises: NXAPICommandError; CommitFailed for a refusal that is only in the words of an answer.
    """
    answers = [answer["result"] or "" for answer in switch.show_list(list(commands), raw_text=True)]
    for command, said in zip(commands, answers, strict=True):
        if not command.startswith("show ") and (wrong := _REFUSED.search(said)):
            raise CommitFailed(f"refused: {command}: {wrong[0].strip()}")
    return answers


def _sections(commit: Commit) -> Iterator[list[str]]:
    """A request for each: the switch ends one that it has begun, whatever becomes of us."""
    section: list[str] = []
    for line in (line for step in commit.steps for line in step.payload.splitlines()):
        if section and not line.startswith(" "):
            yield section
            section = []
        section += filter(None, [line.strip()])
    if section:
        yield section


def _clear(switch: Any) -> None:
    """What is there of a commit that did nothing: each may be missing."""
    for command in CLEAR[1:3]:
        _quietly(switch, "configure terminal", command)
    for command in CLEAR[4:]:
        _quietly(switch, command)


def _quietly(switch: Any, *commands: str) -> None:
    try:
        _say(switch, *commands)
    except (NXAPICommandError, CommitFailed):
        return  # it is not there


def _running(switch: Any) -> str:
    """Without the lines that are anew each time, such as when it was asked."""
    [said] = _say(switch, "show running-config")
    lines = (line for line in said.splitlines() if not line.startswith("!"))
    return "".join(f"{line}\n" for line in lines)


def _patch(switch: Any) -> str:
    """The commands that lead from the checkpoint to what runs now. Raises: CommitFailed."""
    [said] = _say(switch, DIFF)
    _, found, patch = said.partition("Generating Rollback Patch")
    if not found and not _EMPTY.search(said):
        raise CommitFailed(f"`{DIFF}` says no patch: {said.strip()}")
    lines = (line.rstrip() for line in patch.splitlines())
    return "\n".join(
        line for line in lines if line and line[0] not in "!." and not _EMPTY.fullmatch(line)
    )


def _scheduled(switch: Any, who: str, clock: str) -> Found:
    config, told = _say(switch, "show scheduler config", "show scheduler schedule")
    until = re.search(rf"scheduler schedule name {NAME}\s.*?time start (\S+)", config, re.DOTALL)
    if until is None:
        return Found(who, armed=False)
    left = (_time(until[1][:16], WHEN) - _clock(clock)).total_seconds()
    status = re.search(rf"^\s*{NAME}\s+(\S.*?)\s*$", told, re.MULTILINE)
    ran = status[1] if status and status[1] != "-NA-" else ""
    return Found(who, armed=True, seconds=left, status=ran)


def _clock(said: str) -> datetime:
    """The switch's own. Raises: ValueError."""
    found = _CLOCK.search(said)
    if found is None:
        raise ValueError(f"`show clock` says {said.strip()!r}")
    return _time(" ".join(found.groups()), "%H:%M:%S %b %d %Y")


def _time(text: str, form: str) -> datetime:
    """Of the switch's own zone, whichever that is: all that is compared is in it."""
    return datetime.strptime(text, form).replace(tzinfo=UTC)


def _complaints(switch: Any, user: str) -> Iterator[str]:
    """What would keep a change from being made, or from going back by itself."""
    commands = ("show version", "show feature", "show checkpoint summary", "show user-account")
    version, features, checkpoints, accounts = _say(switch, *commands)
    found = _VERSION.search(version)
    if found is None or (int(found[1]), int(found[2])) < OLDEST:
        yield f"NX-OS {'.'.join(found.groups()) if found else 'of no known version'}: need 10.2"
    if not re.search(r"^scheduler\s+\d+\s+enabled", features, re.MULTILINE):
        yield "`feature scheduler` is off: nothing on the switch could revert a change"
        return
    kept = re.findall(r"^\d+\) (?!system-)(\S+):", checkpoints, re.MULTILINE)
    if LOCK not in kept and len(kept) > CHECKPOINTS - 2:
        yield f"{len(kept)} checkpoints of {CHECKPOINTS}: need two; `no checkpoint NAME` drops one"
    account = re.search(
        rf"^user:{re.escape(user)}$(.*?)(?=^user:|\Z)", accounts, re.DOTALL | re.MULTILINE
    )
    if account and "REMOTE authentication" in account[1]:
        [config] = _say(switch, "show scheduler config")
        if f"scheduler aaa-authentication username {user} " not in config:
            yield (
                f"{user} is known by a server of AAA only, and the scheduler runs no job of such a "
                f"user without `scheduler aaa-authentication username {user} password ...`"
            )
