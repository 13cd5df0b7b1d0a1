"""Joins a job: from a Member to a Session."""

import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from dlcp_client.arena.blocks import A, Library
from dlcp_client.connection import JoinedJob
from dlcp_client.environment import Environment
from dlcp_client.ipc.embedded import Embedded, start
from dlcp_client.ipc.handshake import ControlConnection
from dlcp_client.ipc.private_socket import PrivateSocket
from dlcp_client.job.host_peers import HostPeers, answers, machine
from dlcp_client.job.launcher import end_with_launcher
from dlcp_client.job.rendezvous import (
    LATE,
    Meeting,
    Member,
    introduction,
    refusal,
    roster,
    together,
)
from dlcp_client.job.session_origin import SessionOrigin
from dlcp_client.joining.data_path import prove
from dlcp_client.long_times import noted
from dlcp_client.session import Session
from dlcpd.contract.errors import BadConfig, DaemonUnavailable, DlcpError
from dlcpd.contract.messages import Join
from dlcpd.contract.times import seconds

DEFAULT_ARENA: Final = 8 << 30  # bytes of address space; memory is allocated on use
DEFAULT_TIMEOUT: Final = 60.0  # seconds; a slow disk alone can delay a start by this much
RESTART_LOOK: Final = 0.1  # seconds between checks whether a daemon has restarted
MIN_LEFT: Final = 0.1  # seconds; a late daemon gets a chance to say why


def join(  # noqa: PLR0913  # all but the first by keyword
    member: Member,
    *,
    library: Library[A],
    job: str | None = None,
    socket: str | None = None,
    arena_bytes: int = DEFAULT_ARENA,
    timeout: float = DEFAULT_TIMEOUT,
    config: str | Path | None = None,
) -> Session[A]:
    """A session of `member` for arrays of `library`. The other arguments are those of `connect`."""
    timeout = checked_timeout(timeout)
    environment = Environment.read()
    if environment.end_with_launcher:
        end_with_launcher()
    path = socket or environment.socket
    if path and environment.daemon_options():
        raise BadConfig(
            f"DLCPD_LEDGER applies to private daemons, and {path} is the daemon of the host: "
            "set [ledger] directory in the configuration of that daemon, or unset one of the "
            "two"
        )
    origin = SessionOrigin(
        member.store,
        job or "job",
        Path(config) if config else environment.config,
        library,
        socket or environment.socket,
    )
    return enter(member, origin, job or environment.run, arena_bytes, time.monotonic() + timeout)


def enter(
    member: Member,
    origin: SessionOrigin,
    name: str,
    arena_bytes: int,
    deadline: float,
    *,
    previous: Session[Any] | None = None,
) -> Session[Any]:
    """Become a rank of a session that all members enter. `deadline` is monotonic time.

    `previous`: the session of an earlier epoch, still open. The new one uses the same daemon, if
    that still runs, and takes over its residuals there.

    Raises: as `connect`.
    """
    with PrivateSocket() as private_socket:
        access = _access(member, origin, private_socket, deadline, previous)
        member = replace(member, launch=access.host_peers.launch)
        meeting = Meeting(member, origin.subject)
        daemon: Embedded | None = None
        control: ControlConnection | None = None
        try:
            daemon, control = access.open(private_socket, deadline)
            welcome = control.hello(time_left(deadline))
            meeting.publish(introduction(welcome, name or "job"))
        except DlcpError as exc:
            meeting.publish(refusal(exc))
            _leave(daemon, control)
            raise
        except BaseException:
            _leave(daemon, control)
            raise
    origin = replace(origin, private_socket=access.socket_path)
    inherits = previous.number if previous and access.same else 0
    try:
        return _join(member, meeting, origin, (daemon, control), arena_bytes, deadline, inherits)
    except BaseException:
        _leave(daemon, control)
        raise


@dataclass(frozen=True, slots=True)
class DaemonAccess:
    """The way this rank connects to its daemon."""

    origin: SessionOrigin
    host_peers: HostPeers  # ranks that share its private daemon
    again: bool  # it had a session before: the host's daemon may be restarting

    @property
    def socket_path(self) -> str:
        """Socket path of the private daemon; "": the host's daemon is used."""
        return "" if self.origin.socket else self.host_peers.socket_path

    @property
    def same(self) -> bool:
        """Whether the daemon is that of the earlier session, if it has not died since."""
        return self.again and (bool(self.origin.socket) or self.host_peers.running)

    def open(
        self, private_socket: PrivateSocket, deadline: float
    ) -> tuple[Embedded | None, ControlConnection]:
        """Connect to the daemon, or start it. Raises: DaemonUnavailable, NotPermitted."""
        if self.origin.socket:
            return None, self._at_socket(deadline)
        if self.host_peers.first:
            environment, ranks = Environment.read(), len(self.host_peers.ranks)
            options = environment.daemon_options()
            return start(self.origin.config, environment.master, private_socket, ranks, options)
        return None, self.host_peers.connect(time_left(deadline))

    def _at_socket(self, deadline: float) -> ControlConnection:
        while True:
            try:
                return ControlConnection.open(self.origin.socket, time_left(deadline))
            except DaemonUnavailable:
                if not self.again or time.monotonic() + RESTART_LOOK > deadline:
                    raise
                time.sleep(RESTART_LOOK)


def _access(
    member: Member,
    origin: SessionOrigin,
    private_socket: PrivateSocket,
    deadline: float,
    previous: Session[Any] | None,
) -> DaemonAccess:
    """The access of this rank. All ranks meet, even those with the host's daemon."""
    private = not origin.socket
    running = private and bool(origin.private_socket) and answers(origin.private_socket)
    environment = Environment.read()
    options = environment.daemon_options()
    here = machine(origin.config, options) if private and environment.share else ""
    name = origin.private_socket if running else private_socket.name
    host_peers = HostPeers.meet(member, origin.subject, here, name, deadline, running)
    return DaemonAccess(origin, host_peers, again=previous is not None)


def _join(  # noqa: PLR0913, PLR0917  # a step of connect, with its variables
    member: Member,
    meeting: Meeting,
    origin: SessionOrigin,
    daemon: tuple[Embedded | None, ControlConnection],
    arena_bytes: int,
    deadline: float,
    inherits: int,
) -> Session[Any]:
    embedded, control = daemon
    with ExitStack() as undo:
        with together(member, "joined", deadline):
            name, peers = roster(meeting.gather(deadline + LATE))
            proof = member.secret.tag("join", member.launch, name) if member.secret else ""
            request = Join(
                name,
                member.rank,
                member.world_size,
                arena_bytes,
                time_left(deadline),
                peers,
                proof,
                inherits,
            )
            size, arena, lanes = control.join(request)
            joined = JoinedJob(
                name,
                member.rank,
                member.world_size,
                control,
                lanes,
                arena,
                size,
                embedded,
                member.store,
                replace(origin, lineage=origin.lineage or name),
                library=origin.library,
                secret=member.secret,
                hosts=len({peer.host for peer in peers}),
            )
            session = Session[Any](joined)
            undo.callback(session.close)
        prove(session, member, deadline)
        undo.pop_all()
    return session


def checked_timeout(timeout: Any) -> float:
    """A time to join, in seconds. Raises: BadConfig."""
    found = seconds(timeout)
    if found is None:
        raise BadConfig(f"timeout {timeout!r} is not valid: use seconds above 0, or a timedelta")
    return noted(found)


def time_left(deadline: float) -> float:
    """Seconds until monotonic time `deadline`, at least MIN_LEFT."""
    return max(deadline - time.monotonic(), MIN_LEFT)


def _leave(daemon: Embedded | None, control: ControlConnection | None) -> None:
    if control:
        control.close()
    if daemon:
        daemon.close()
