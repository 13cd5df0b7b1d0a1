"""Driver for Cisco NX-OS over NX-API, with NAPALM's client. Needs the extra `nxos` (napalm).

NX-OS has checkpoints, but no commit timer for single lines. The timer is a job of its scheduler
that rolls back on the switch, so the revert does not depend on switchcfg. The scheduler counts in
minutes of the switch's clock, so a change lasts about a minute longer than requested. All state of
a pending commit is on the switch, so any host can see its `who` and confirm it.

NX-OS continues after a refused line, and the lines before it are in force: every line's answer is
read, and after a refusal all lines are rolled back.

Credentials come from the environment: see `switchcfg.drivers.login`, kind NXOS. Sources: Cisco
Nexus 9000 NX-OS 10.x, "Programmability Guide" (NX-API CLI) and "System Management Configuration
Guide" ("Configuring Rollback", "Configuring the Scheduler").
"""

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Final, Self, TypeVar

from napalm.nxapi_plumbing import Device as NxApi
from napalm.nxapi_plumbing.errors import NXAPIAuthError, NXAPICommandError, NXAPIError

from switchcfg.drivers.driver import Commit, Pending, Target, busy, host_and_port
from switchcfg.drivers.login import Login, prefix
from switchcfg.drivers.login import login as login_of
from switchcfg.drivers.nxos_questions import (
    LOCK,
    NAME,
    WHEN,
    Found,
    clock_of,
    complaints,
    patch_of,
    running,
    say,
    scheduled,
)
from switchcfg.errors import Busy, CommitFailed, NothingPending, Unreachable
from switchcfg.plan.masking import masked
from switchcfg.platforms.platform import Step

TIMEOUT: Final = 300  # seconds for one request; a rollback of a large configuration takes minutes
PORT: Final = 443
KIND: Final = "NXOS"  # of login
MARGIN: Final = 5.0  # seconds before a rollback in which it is too late to confirm
WHO: Final = 80  # characters of a checkpoint's description
BACK: Final = f"rollback running-config checkpoint {NAME} atomic"
CLEAR: Final = (
    "configure terminal",
    f"no scheduler schedule name {NAME}",
    f"no scheduler job name {NAME}",
    "end",
    f"no checkpoint {NAME}",
    f"no checkpoint {LOCK}",
)
_BACK: Final = re.compile(r"Rollback completed successfully|Rollback Patch is Empty", re.IGNORECASE)
T = TypeVar("T")


class NxosDriver:
    """One NX-OS switch. NX-API has no connection."""

    def __init__(self, device: str, address: str, *, login: Login) -> None:
        self.device, self.address = device, address
        self._login = login

    @classmethod
    def of(cls, target: Target) -> Self:
        return cls(target.name, target.address, login=login_of(KIND))

    async def get(self) -> str:
        return await self._call(running)

    async def ask(self, question: str) -> str:
        return await self._call(lambda switch: json.dumps(switch.show(question)))

    async def diff(self, _steps: Sequence[Step]) -> str | None:
        return None  # there is no candidate

    async def commit(self, commit: Commit) -> str | None:
        return await self._call(lambda switch: self._commit(switch, commit))

    def _commit(self, switch: Any, commit: Commit) -> str | None:
        if missing := list(complaints(switch, self._login.user)):
            raise CommitFailed(f"{self.device}: {'; '.join(missing)}")
        if (found := self._look(switch)) is not None:
            raise busy(self.device, " ".join(filter(None, (found.who, found.problem))))
        ends = time.monotonic() + commit.seconds
        self._arm(switch, commit)
        try:
            for section in _sections(commit):
                if time.monotonic() > ends:  # lines sent after the rollback would stay
                    raise CommitFailed(
                        f"{self.device}: the time to revert passed before the last step: give a "
                        "longer --revert-after"
                    )
                say(switch, "configure terminal", *section)
            return patch_of(switch) if commit.diff else None
        except (NXAPICommandError, CommitFailed):
            self._back(switch)
            raise

    def _arm(self, switch: Any, commit: Commit) -> None:
        """Take the lock, then schedule the rollback in one request: the switch completes it even
        if switchcfg ends. Raises: Busy; CommitFailed, NXAPICommandError."""
        [clock] = say(switch, "show clock")
        # Rounded up: the requested seconds are the least time left for a confirm.
        until = clock_of(clock) + timedelta(seconds=commit.seconds + MARGIN + 59)
        who = re.sub(r"[^\w.@:-]+", " ", commit.who)[:WHO]
        try:
            say(switch, f"checkpoint {LOCK} description {who}")
        except (NXAPICommandError, CommitFailed) as exc:
            raise Busy(
                f"{self.device}: another user is starting a change, or the device refused: {exc}"
            ) from exc
        try:
            say(
                switch,
                "configure terminal",
                f"scheduler job name {NAME}",
                BACK,
                "end-job",
                f"scheduler schedule name {NAME}",
                f"job name {NAME}",
                f"time start {until.strftime(WHEN)}",
                "end",
                # The checkpoint includes the schedule: a rollback must not remove its own job.
                f"checkpoint {NAME}",
            )
        except (NXAPICommandError, CommitFailed):
            _clear(switch)
            raise

    async def confirm(self) -> None:
        def confirm(switch: Any) -> None:
            found = self._mine(switch)
            if found.seconds < MARGIN:
                raise Busy(f"{self.device}: the device is reverting a change: try again later")
            say(switch, *CLEAR)

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
            raise NothingPending(
                f"{self.device}: no change is pending, or the device has reverted it"
            )
        return found

    def _back(self, switch: Any) -> None:
        """Roll back now. Raises: CommitFailed; then the commit stays pending."""
        [said] = say(switch, BACK)
        if not _BACK.search(said):
            raise CommitFailed(f"{self.device}: the rollback failed: {masked(said.strip())}")
        say(switch, *CLEAR)

    async def save(self) -> str:
        [said] = await self._call(lambda switch: say(switch, "copy running-config startup-config"))
        if "Copy complete" not in said:
            raise CommitFailed(
                f"{self.device}: the configuration was not saved: {masked(said.strip())}"
            )
        return ""

    async def pending(self) -> Pending | None:
        found = await self._call(self._look)
        return Pending(found.who, found.seconds, found.problem) if found is not None else None

    async def examine(self) -> Sequence[str]:
        return await self._call(lambda switch: list(complaints(switch, self._login.user)))

    async def close(self) -> None:
        """Does nothing: there is no connection."""

    def _look(self, switch: Any) -> Found | None:
        """The commit on the switch, if any; the remains of a reverted one are removed."""
        clock, checkpoints = say(switch, "show clock", "show checkpoint summary")
        lock = re.search(
            rf"^\d+\) {LOCK}:(.*?)(?=^\d+\)|\Z)", checkpoints, re.DOTALL | re.MULTILINE
        )
        if lock is None:
            return None
        named = re.search(r"Description: *(.*)", lock[1])
        found = scheduled(switch, named[1].strip() if named else "an unknown commit", clock)
        if found.reverted:
            say(switch, *CLEAR)
            return None
        return found

    async def _call(self, what: Callable[[Any], T]) -> T:
        return await asyncio.to_thread(self._do, what)

    def _do(self, what: Callable[[Any], T]) -> T:
        try:
            return what(self._api())
        except NXAPICommandError as exc:
            raise CommitFailed(
                f"{self.device}: the device refused `{exc.command}`: {masked(exc.message.strip())}"
            ) from exc
        except NXAPIAuthError as exc:
            raise self._lost(
                f"the device refuses the login: check {prefix(KIND)}USER and {prefix(KIND)}PASSWORD"
            ) from exc
        except (NXAPIError, OSError) as exc:
            raise self._lost(f"{exc}; check that `feature nxapi` is on, with HTTPS") from exc
        except (ValueError, LookupError, TypeError, AttributeError) as exc:
            raise self._lost(f"the answer is not from NX-API ({exc})") from exc

    def _lost(self, why: str) -> Unreachable:
        return Unreachable(f"{self.device} ({self.address}): {why}")

    def _api(self) -> Any:
        login = self._login
        if login.cert:
            raise self._lost(
                f"{prefix(KIND)}CERT is set, and NX-API takes only a user and a password: unset it"
            )
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


def _sections(commit: Commit) -> Iterator[list[str]]:
    """The lines of each section, for one request each: the switch completes a request that it has
    begun, even if switchcfg ends."""
    section: list[str] = []
    for line in (line for step in commit.steps for line in step.payload.splitlines()):
        if section and not line.startswith(" "):
            yield section
            section = []
        section += filter(None, [line.strip()])
    if section:
        yield section


def _clear(switch: Any) -> None:
    """Remove the remains of a commit that changed nothing; each may be missing."""
    for command in CLEAR[1:3]:
        _quietly(switch, "configure terminal", command)
    for command in CLEAR[4:]:
        _quietly(switch, command)


def _quietly(switch: Any, *commands: str) -> None:
    try:
        say(switch, *commands)
    except (NXAPICommandError, CommitFailed):
        return  # the object does not exist
