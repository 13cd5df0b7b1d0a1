"""Driver for NETCONF devices (RFC 6241) with a candidate. Needs the extra `netconf` (ncclient).

The device reverts by itself: a confirmed commit (section 8.4). In version 1.1 of the capability, a
commit has a name and another session may confirm it; in 1.0 it ends with the session.
User and key come from ~/.ssh/config, as for ssh(1), but the port comes from the address. Host keys
are always checked.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from ncclient import NCClientError, manager
from ncclient.operations import RPCError
from ncclient.xml_ import to_ele

from switchcfg.drivers.driver import Commit, Pending, Target, busy, host_and_port
from switchcfg.drivers.note import Note
from switchcfg.errors import BadState, CommitFailed, NothingPending, Unreachable
from switchcfg.plan.masking import masked
from switchcfg.platforms.platform import Netconf, NetconfPlatform, Step

TIMEOUT: Final = 60  # seconds for one call; a commit on a full router takes 10
PORT: Final = 830
CAPABILITY: Final = "urn:ietf:params:netconf:capability"
NAMED: Final = f"{CAPABILITY}:confirmed-commit:1.1"
STARTUP: Final = f"{CAPABILITY}:startup:1.0"
NEEDED: Final = (f"{CAPABILITY}:candidate:1.0", f"{CAPABILITY}:confirmed-commit:")
T = TypeVar("T")


class NetconfDriver:
    """One device, over one session that is opened on first use."""

    def __init__(
        self, device: str, address: str, dialect: Netconf, *, ssh_config: Path | None, state: Path
    ) -> None:
        """`state`: a folder for the names of pending commits, which the device does not report."""
        self.device, self.address = device, address
        self._dialect = dialect
        self._ssh_config = ssh_config or Path.home() / ".ssh" / "config"
        self._note = Note(state / f"{device}.netconf")
        self._session: Any = None
        self._unnamed = False  # a commit without a name is pending; only this session may confirm

    @classmethod
    def of(cls, target: Target) -> Self:
        if not isinstance(target.platform, NetconfPlatform):
            raise TypeError(f"{target.platform.name} is not a NetconfPlatform")
        return cls(
            target.name,
            target.address,
            target.platform.netconf(),
            ssh_config=target.ssh_config,
            state=target.pending,
        )

    async def get(self) -> str:
        return await self._call(
            lambda session: self._dialect.said(session.dispatch(to_ele(self._dialect.ask)).xml)
        )

    async def ask(self, question: str) -> str:
        return await self._call(lambda session: str(session.dispatch(to_ele(question)).xml))

    async def diff(self, steps: Sequence[Step]) -> str | None:
        await self._refuse_pending()
        return await self._call(lambda session: self._diff(session, steps))

    def _diff(self, session: Any, steps: Sequence[Step]) -> str | None:
        if not self._dialect.compare:
            return None
        with self._loaded(session, steps):
            said = self._compared(session)
            session.discard_changes()
        return said

    async def commit(self, commit: Commit) -> str | None:
        await self._refuse_pending()
        return await self._call(lambda session: self._commit(session, commit))

    def _commit(self, session: Any, commit: Commit) -> str | None:
        with self._loaded(session, commit.steps):
            said = self._compared(session) if commit.diff and self._dialect.compare else None
            # No validate first: after it, netconfd 2.13 does not commit, and answers "ok".
            name = f"switchcfg-{secrets.token_hex(8)}" if self._named(session) else None
            if name:
                self._note.write(name, commit.who, commit.seconds)
            try:
                session.commit(confirmed=True, timeout=str(commit.seconds), persist=name)
            except RPCError:
                self._note.drop()
                raise
            self._unnamed = name is None
        return said

    @contextmanager
    def _loaded(self, session: Any, steps: Sequence[Step]) -> Iterator[None]:
        """Hold the candidate locked, with only the steps in it. An error discards them; so does the
        device when the session with the lock is lost (RFC 6241 section 8.3.5.2)."""
        with session.locked("candidate"):
            session.discard_changes()
            try:
                for step in steps:
                    session.dispatch(to_ele(self._dialect.load(step)))
                yield
            except (RPCError, CommitFailed):
                session.discard_changes()
                raise

    def _compared(self, session: Any) -> str:
        reply = session.dispatch(to_ele(self._dialect.compare)).xml
        try:
            return self._dialect.compared(reply)
        except BadState as exc:
            raise CommitFailed(f"{self.device}: {exc}") from exc

    async def _refuse_pending(self) -> None:
        if (found := await self.pending()) is not None:
            raise busy(self.device, found.who)

    async def confirm(self) -> None:
        name = self._take()
        try:
            await self._call(lambda session: session.commit(persist_id=name))
        except CommitFailed as exc:
            raise NothingPending(
                f"{self.device}: the device has reverted the change ({exc})"
            ) from exc

    async def abort(self) -> None:
        name = self._take()
        await self._call(lambda session: self._abort(session, name))

    def _abort(self, session: Any, name: str | None) -> None:
        if name or not self._dialect.undo:
            session.cancel_commit(persist_id=name)
            return
        with session.locked("candidate"):
            session.dispatch(to_ele(self._dialect.undo))
            session.commit()

    def _take(self) -> str | None:
        """Forget the pending commit and return its name; None: no name. Raises: NothingPending."""
        if self._unnamed:
            self._unnamed = False
            return None
        noted = self._note.read()
        if noted is None:
            raise NothingPending(f"{self.device}: no change of this host is pending")
        self._note.drop()
        name, pending = noted
        if pending.seconds < 0:
            raise NothingPending(f"{self.device}: the device has reverted the change")
        return name

    async def save(self) -> str:
        def copy(session: Any) -> str:
            if STARTUP in session.server_capabilities:  # else running is the startup, too
                session.copy_config(source="running", target="startup")
            return ""

        return await self._call(copy)

    async def pending(self) -> Pending | None:
        """The pending commit of this host; for other hosts' commits the device refuses the lock."""
        noted = self._note.read()
        return noted[1] if noted is not None and noted[1].seconds > 0 else None

    async def examine(self) -> Sequence[str]:
        def ask(session: Any) -> list[str]:
            has = list(session.server_capabilities)
            return [
                f"the device lacks the capability {each.removeprefix(CAPABILITY + ':')}"
                for each in NEEDED
                if not any(one.startswith(each) for one in has)
            ]

        return await self._call(ask)

    async def close(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            await asyncio.to_thread(session.close_session)

    @staticmethod
    def _named(session: Any) -> bool:
        return NAMED in session.server_capabilities

    async def _call(self, what: Callable[[Any], T]) -> T:
        return await asyncio.to_thread(self._do, what)

    def _do(self, what: Callable[[Any], T]) -> T:
        try:
            if self._session is None or not self._session.connected:
                self._session = self._connect()
            return what(self._session)
        except RPCError as exc:
            if exc.tag == "lock-denied":
                raise busy(self.device, f"session {exc.info or 'of another user'}") from exc
            raise CommitFailed(
                f"{self.device}: the device refused: {masked(exc.message or exc.tag)}"
            ) from exc
        except (NCClientError, OSError, EOFError) as exc:
            raise Unreachable(
                f"{self.device} ({self.address}): {exc or type(exc).__name__}"
            ) from exc

    def _connect(self) -> Any:
        host, port = host_and_port(self.address, PORT)
        config = str(self._ssh_config) if self._ssh_config.exists() else None
        return manager.connect_ssh(
            host=host, port=port, ssh_config=config, hostkey_verify=True, timeout=TIMEOUT
        )
