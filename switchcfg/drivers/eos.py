"""Driver for Arista EOS over eAPI, with NAPALM. Needs the extra `eos` (napalm).

A configuration session is a candidate, and commits with a timer: EOS reverts by itself. NAPALM's
confirm also writes the whole running configuration to the startup configuration. Credentials come
from the environment: see `switchcfg.drivers.login`, kind EOS.
"""

import asyncio
import json
import logging
import secrets
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from napalm import get_network_driver
from napalm.base.exceptions import (
    CommitError,
    ConnectionException,
    MergeConfigException,
    SessionLockedException,
    UnsupportedVersion,
)
from pyeapi.eapilib import CommandError, EapiError

from switchcfg.drivers.driver import Commit, Pending, Target, busy, host_and_port
from switchcfg.drivers.login import Login
from switchcfg.drivers.login import login as login_of
from switchcfg.drivers.note import Note
from switchcfg.errors import Busy, CommitFailed, NothingPending, Unreachable
from switchcfg.plan.masking import masked
from switchcfg.platforms.platform import Step

TIMEOUT: Final = 60  # seconds for one call
PORT: Final = 443
KIND: Final = "EOS"  # of login
LONGEST: Final = 86_399  # seconds; NAPALM writes the timer as a time of day
T = TypeVar("T")
logging.getLogger("pyeapi").setLevel(logging.CRITICAL)  # it raises everything that it logs


class EosDriver:
    """One EOS switch. eAPI has no connection; any client may use a session by its name."""

    def __init__(self, device: str, address: str, *, login: Login, state: Path) -> None:
        """`state`: a folder for notes of `who` per commit, which the switch does not store."""
        self.device, self.address = device, address
        self._login = login
        self._note = Note(state / f"{device}.eos")
        self._opened: Any = None

    @classmethod
    def of(cls, target: Target) -> Self:
        return cls(target.name, target.address, login=login_of(KIND), state=target.pending)

    async def get(self) -> str:
        return await self._call(lambda switch: str(switch.get_config("running")["running"]))

    async def ask(self, question: str) -> str:
        return await self._call(lambda switch: json.dumps(switch.device.run_commands([question])))

    async def diff(self, steps: Sequence[Step]) -> str | None:
        return await self._call(lambda switch: self._diff(switch, steps))

    def _diff(self, switch: Any, steps: Sequence[Step]) -> str:
        self._load(switch, steps)
        try:
            return str(switch.compare_config())
        finally:
            switch.discard_config()

    def _load(self, switch: Any, steps: Sequence[Step]) -> str:
        """Load the steps into a new session and return its name; a refused session is removed."""
        if found := self._pending(switch):
            raise busy(self.device, found.who)
        name = f"switchcfg_{secrets.token_hex(8)}"
        switch.config_session = name
        switch.load_merge_candidate(config="".join(step.payload for step in steps))
        return name

    async def commit(self, commit: Commit) -> str | None:
        return await self._call(lambda switch: self._commit(switch, commit))

    def _commit(self, switch: Any, commit: Commit) -> str | None:
        name = self._load(switch, commit.steps)
        try:
            said = str(switch.compare_config()) if commit.diff else None
            self._note.write(name, commit.who, commit.seconds)
            switch.commit_config(revert_in=min(commit.seconds, LONGEST))
        except (CommitError, CommandError):
            self._note.drop()
            switch.discard_config()
            raise
        return said

    async def confirm(self) -> None:
        await self._call(lambda switch: self._end(switch, switch.confirm_commit))

    async def abort(self) -> None:
        await self._call(lambda switch: self._end(switch, switch.rollback))

    def _end(self, switch: Any, how: Callable[[], None]) -> None:
        noted = self._note.read()
        self._note.drop()
        if noted is None or noted[0] not in _timers(switch):
            raise NothingPending(
                f"{self.device}: no change of this host is pending, or the device has reverted it"
            )
        switch.config_session = noted[0]
        how()

    async def save(self) -> str:
        return ""  # NAPALM's confirm has saved

    async def pending(self) -> Pending | None:
        return await self._call(self._pending)

    def _pending(self, switch: Any) -> Pending | None:
        noted, found = self._note.read(), _timers(switch)
        if noted is not None and noted[0] in found:
            return noted[1]
        return next((Pending(f"session {name}", left) for name, left in found.items()), None)

    async def examine(self) -> Sequence[str]:
        try:
            await self.pending()
        except CommitFailed as exc:
            return [str(exc)]
        return []

    async def close(self) -> None:
        if self._opened is not None:
            self._opened.config_session = None  # else closing aborts the pending commit
            switch, self._opened = self._opened, None
            await asyncio.to_thread(switch.close)

    async def _call(self, what: Callable[[Any], T]) -> T:
        return await asyncio.to_thread(self._do, what)

    def _do(self, what: Callable[[Any], T]) -> T:
        try:
            if self._opened is None:
                switch = self._switch()
                switch.open()
                self._opened = switch
            return what(self._opened)
        except SessionLockedException as exc:
            raise Busy(
                f"{self.device}: another user has a configuration session open: try again after "
                "it ends"
            ) from exc
        except (MergeConfigException, CommitError, CommandError) as exc:
            raise CommitFailed(f"{self.device}: the device refused: {masked(str(exc))}") from exc
        except UnsupportedVersion as exc:
            raise CommitFailed(
                f"{self.device}: EOS {exc} is too old: switchcfg needs 4.23 or later"
            ) from exc
        except (ConnectionException, EapiError, OSError) as exc:
            raise Unreachable(f"{self.device} ({self.address}): {exc}") from exc

    def _switch(self) -> Any:
        host, port = host_and_port(self.address, PORT)
        trust = ssl.create_default_context(cafile=self._login.ca)
        if self._login.cert:
            trust.load_cert_chain(self._login.cert, self._login.key)
        more = {"transport": "https", "port": port, "context": trust}
        kind = get_network_driver("eos")
        return kind(host, self._login.user, self._login.password, TIMEOUT, optional_args=more)


def _timers(switch: Any) -> dict[str, float]:
    """Session -> seconds until it reverts; -1: unknown."""
    found: dict[str, float] = switch._get_pending_commits()  # noqa: SLF001  # not public
    return found
