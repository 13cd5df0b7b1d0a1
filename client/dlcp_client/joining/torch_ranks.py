"""connect(): from a torch.distributed rank to a session."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from dlcp_client.arena.tensors import TENSORS
from dlcp_client.environment import Environment
from dlcp_client.job.rendezvous import Member
from dlcp_client.job.secret import JobSecret, job_secret
from dlcp_client.job.store import Store
from dlcp_client.joining.sessions import DEFAULT_ARENA, DEFAULT_TIMEOUT, checked_timeout, join
from dlcp_client.session import Session
from dlcpd.contract.errors import BadConfig


def connect(  # noqa: PLR0913  # all but the first three by keyword
    store: Store | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    *,
    group: Any = None,
    job: str | None = None,
    socket: str | None = None,
    arena_bytes: int = DEFAULT_ARENA,
    timeout: float = DEFAULT_TIMEOUT,
    config: str | Path | None = None,
) -> Session[torch.Tensor]:
    """Join this process's job. Every rank calls it, in the same order as its other calls of it.

    Args:
        store, rank, world_size: the job's store, and this rank; by default those of `group`.
        group: a torch.distributed group; by default the default one.
        job: name for logs, the same on all ranks.
        socket: session socket of the host's daemon; by default DLCPD_SOCKET, and without
            that a private daemon is started, which ends with the ranks of this machine that
            share it: those of the same user and configuration, unless DLCPD_SHARE=0.
        arena_bytes: the most bytes of tensors in flight and in `Session.empty`.
        timeout: seconds until all ranks have joined. An error is raised at most 5 s later.
        config: configuration file of a private daemon; by default DLCPD_CONFIG.

    It ends with a small all-reduce, which proves that the session can move data. If one rank fails,
    all do.

    With a secret in DLCPD_JOB_SECRET, or in the file that DLCPD_JOB_SECRET_FILE names, only ranks
    that have it can take part (docs/security.md).

    Raises: BadConfig, DaemonUnavailable, NotAuthorised, NotPermitted, PeerLost, RanksDisagree: each
        says which rank and what to do.
    """
    timeout = checked_timeout(timeout)
    member = _member(store, rank, world_size, group, job_secret(Environment.read()))
    return join(
        member,
        library=TENSORS,
        job=job,
        socket=socket,
        arena_bytes=arena_bytes,
        timeout=timeout,
        config=config,
    )


def member_of(group: Any = None, secret: JobSecret | None = None) -> Member:
    """This process as a member of `group`; None: of the default one. Raises: BadConfig."""
    if not dist.is_available() or not dist.is_initialized():
        raise BadConfig(
            "torch.distributed has no process group: call init_process_group() first "
            "(under torchrun), or pass store=, rank= and world_size="
        )
    c10d = dist.distributed_c10d
    store = (
        c10d._get_default_store()  # noqa: SLF001  # no public way to the job's store
        if group is None
        else c10d._get_process_group_store(group)  # noqa: SLF001  # as above
    )
    return Member(store, dist.get_rank(group), dist.get_world_size(group), secret)


def member_of_launch(group: Any, secret: JobSecret | None, timeout: float) -> Member:
    """As `member_of`; without a process group, from the launcher's environment.

    Raises: BadConfig.
    """
    if group is not None and not isinstance(group, dist.ProcessGroup):
        raise BadConfig(
            f"group={group!r} is not valid: pass a torch.distributed group that contains this rank"
        )
    if group is not None or (dist.is_available() and dist.is_initialized()):
        return member_of(group, secret)
    try:
        found = rendezvous("env://", timeout=timedelta(seconds=timeout))
        store, rank, world_size = next(found)
    except (RuntimeError, ValueError) as exc:
        raise BadConfig(
            "the ranks have no way to find each other: there is no process group, and the "
            f"environment lacks {exc}; start the script with torchrun, or call "
            "init_process_group() first"
        ) from exc
    return Member(store, rank, world_size, secret)


def _member(
    store: Store | None,
    rank: int | None,
    world_size: int | None,
    group: Any,
    secret: JobSecret | None,
) -> Member:
    given = (store, rank, world_size)
    if store is None or rank is None or world_size is None:
        if any(value is not None for value in given):
            raise BadConfig("connect: give all of store, rank and world_size, or none of them")
        return member_of(group, secret)
    return Member(store, rank, world_size, secret)
