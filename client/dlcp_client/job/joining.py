"""connect(): from a torch.distributed rank to a session."""

import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dlcp_client.environment import Environment
from dlcp_client.ipc.door import Door
from dlcp_client.ipc.embedded import Embedded, start
from dlcp_client.ipc.handshake import ControlConnection
from dlcp_client.job.data_path import prove
from dlcp_client.job.launcher import end_with_launcher
from dlcp_client.job.neighbours import Neighbours, machine
from dlcp_client.job.rendezvous import Meeting, Member, introduction, refusal, roster, together
from dlcp_client.job.secret import JobSecret, job_secret
from dlcp_client.session import JoinedJob, Session
from dlcpd.contract.errors import BadConfig, DlcpError
from dlcpd.contract.messages import Join

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

DEFAULT_ARENA: Final = 8 << 30  # bytes of address space; memory is taken only as it is used
DEFAULT_TIMEOUT: Final = 60.0  # seconds; a slow disk alone can set starts this far apart
MAX_TIMEOUT: Final = 3600.0  # seconds, as Join.timeout
MIN_LEFT: Final = 0.1  # seconds; a late daemon gets a chance to say why


def connect(  # noqa: PLR0913  # all but the first three by keyword
    store: "Store | None" = None,
    rank: int | None = None,
    world_size: int | None = None,
    *,
    group: Any = None,
    job: str | None = None,
    socket: str | None = None,
    arena_bytes: int = DEFAULT_ARENA,
    timeout: float = DEFAULT_TIMEOUT,
    config: str | Path | None = None,
) -> Session:
    """Join this process's job. Every rank calls it, in the same order as its other calls of it.

    Args:
        store, rank, world_size: where and who; by default those of `group`.
        group: a torch.distributed group; by default the default one.
        job: name for logs, the same on all ranks.
        socket: session socket of the host's daemon; by default DLCPD_SOCKET, and without
            that a private daemon is started, which ends with the ranks of this machine that
            share it: those of the same user and configuration, unless DLCPD_SHARE=0.
        arena_bytes: the most bytes of tensors in flight and in `Session.empty`.
        timeout: seconds for all ranks to be there. What failed is raised at most 5 s later.
        config: configuration file of a private daemon; by default DLCPD_CONFIG.

    It ends with a small all-reduce, so a session that is returned can move data. Where one rank
    fails, all do.

    With a secret in DLCPD_JOB_SECRET, or in the file that DLCPD_JOB_SECRET_FILE names, only ranks
    that have it can take part (docs/security.md).

    Raises: BadConfig, DaemonUnavailable, NotAuthorised, NotPermitted, PeerLost, RanksDisagree: each
        says which rank and what to do.
    """
    check_timeout(timeout)
    environment = Environment.read()
    member = _member(store, rank, world_size, group, job_secret(environment))
    if environment.end_with_launcher:
        end_with_launcher()
    deadline = time.monotonic() + timeout
    subject, path = job or "job", socket or environment.socket
    file = Path(config) if config else environment.config
    daemon: Embedded | None = None
    control: ControlConnection | None = None
    with Door() as door:
        here = machine(file) if environment.share and not path else ""
        neighbours = Neighbours.meet(member, subject, here, door.name, deadline)
        member = replace(member, launch=neighbours.launch)
        meeting = Meeting(member, subject)
        try:
            if path:
                control = ControlConnection.open(path, timeout)
            elif neighbours.first:
                daemon, control = start(file, environment.master, door, len(neighbours.ranks))
            else:
                control = neighbours.connect(_left(deadline))
            welcome = control.hello(_left(deadline))
            meeting.publish(introduction(welcome, job or environment.run or "job"))
        except DlcpError as exc:
            meeting.publish(refusal(exc))
            _leave(daemon, control)
            raise
        except BaseException:
            _leave(daemon, control)
            raise
    try:
        return _join(member, meeting, daemon, control, arena_bytes, deadline)
    except BaseException:
        _leave(daemon, control)
        raise


def _join(  # noqa: PLR0917  # a step of connect, with its variables
    member: Member, meeting: Meeting, daemon: Embedded | None, control: ControlConnection,
    arena_bytes: int, deadline: float,
) -> Session:  # fmt: skip
    with ExitStack() as undo:
        with together(member, "joined", deadline):
            name, peers = roster(meeting.gather(deadline))
            proof = member.secret.tag("join", member.launch, name) if member.secret else ""
            wish = Join(
                name, member.rank, member.world_size, arena_bytes, _left(deadline), peers, proof
            )
            size, arena, lanes = control.join(wish)
            joined = JoinedJob(
                name, member.rank, member.world_size, control, lanes, arena, size, daemon,
                member.store,
            )  # fmt: skip
            session = Session(joined)
            undo.callback(session.close)
        prove(session, member, deadline)
        undo.pop_all()
    return session


def check_timeout(timeout: Any) -> None:
    """Raises: BadConfig for what is no number of seconds that a daemon waits."""
    if not isinstance(timeout, int | float) or not 0 < timeout <= MAX_TIMEOUT:
        raise BadConfig(f"timeout {timeout!r}: seconds, 0..{MAX_TIMEOUT:.0f}")


def _member(
    store: "Store | None", rank: int | None, world_size: int | None, group: Any,
    secret: JobSecret | None,
) -> Member:  # fmt: skip
    given = (store, rank, world_size)
    if store is None or rank is None or world_size is None:
        if any(value is not None for value in given):
            raise BadConfig("connect: store, rank and world_size go together; give all or none")
        return Member.of_group(group, secret)
    return Member(store, rank, world_size, secret)


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), MIN_LEFT)


def _leave(daemon: Embedded | None, control: ControlConnection | None) -> None:
    if control:
        control.close()
    if daemon:
        daemon.close()
