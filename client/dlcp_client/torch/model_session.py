"""Opens a session for a DDP model, or falls back to its backend if a rank cannot join."""

import logging
import time
import warnings
from typing import Any, Final

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from dlcp_client.environment import Environment
from dlcp_client.job import ballot
from dlcp_client.job.joining import checked_timeout
from dlcp_client.job.secret import job_secret
from dlcp_client.session import Session
from dlcp_client.torch.joining import connect, member_of
from dlcpd.contract.errors import BadConfig, DlcpError

_log: Final = logging.getLogger("dlcp_client")


def check_options(options: dict[str, Any], staged: str) -> None:
    """Raises: BadConfig for an option that is set and cannot be combined with `staged`."""
    for name, value in options.items():
        if value:
            raise BadConfig(f"{name} does not work with {staged} yet: leave one of the two out")


def session_for(
    model: DistributedDataParallel,
    *,
    fallback: bool,
    timeout: float,
    transport: str = "dlcp",
    **options: Any,
) -> Session | None:
    """A session of the model's ranks. None in a world of one, or if all ranks agreed on the
    fallback.

    `timeout`: seconds for `connect`; the vote takes up to VOTE_MARGIN more. `transport`: the one
    that every rank must request. `options`: further options of `connect`.

    Raises: the error that kept this rank, or another, from joining.
    """
    timeout = checked_timeout(timeout)
    group = model.process_group
    if dist.get_world_size(group) == 1:
        return None
    secret = job_secret(Environment.read())
    session, error = None, None
    deadline = time.monotonic() + timeout
    try:
        session = connect(group=group, timeout=timeout, **options)
    except DlcpError as exc:
        error = exc
    try:
        problem = ballot.hold(
            member_of(group, secret),
            error,
            fallback=fallback,
            deadline=deadline,
            transport=transport,
        )
    except BaseException:
        if session:
            session.close()
        raise
    if not problem:
        return session
    if session:
        session.close()
    text = f"dlcpd is NOT in use, gradients go through {dist.get_backend(group)}: {problem}"
    _log.error(text)
    warnings.warn(text, RuntimeWarning, stacklevel=3)
    return None
