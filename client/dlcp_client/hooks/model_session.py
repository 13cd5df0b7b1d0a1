"""Opens a session for a DDP model, or falls back to its backend if a rank cannot join."""

import logging
import time
import warnings
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from dlcp_client.environment import Environment
from dlcp_client.job import transport_vote
from dlcp_client.job.secret import job_secret
from dlcp_client.joining.sessions import checked_timeout
from dlcp_client.joining.torch_ranks import connect, member_of
from dlcp_client.session import Session
from dlcpd.contract.errors import BadConfig, DlcpError

_log: Final = logging.getLogger("dlcp_client")


def check_options(options: dict[str, Any], staged: str) -> None:
    """Raises: BadConfig for an option that is set and cannot be combined with `staged`."""
    for name, value in options.items():
        if value:
            raise BadConfig(f"{name} does not support {staged}: leave one of the two out")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """Options of `register` for the session that it opens."""

    fallback: bool  # whether a rank that cannot connect makes all ranks use the model's backend
    timeout: float  # seconds for `connect`; the vote takes up to VOTE_MARGIN more
    job: str | None  # as the rest, an argument of `connect`
    socket: str | None
    arena_bytes: int
    config: str | Path | None

    def given_or_opened(
        self,
        given: Session | None,
        model: DistributedDataParallel,
        undo: ExitStack,
        transport: str = "dlcp",
    ) -> tuple[Session | None, bool]:
        """The session for a model, and whether it is a new one, which `undo` closes.

        `given`: the caller's own. `transport`: the one that every rank must request. There is no
        session in a world of one, or if all ranks agreed on the fallback.

        Raises: the error that kept this rank, or another, from joining.
        """
        if given is not None:
            return given, False
        opened = self._opened(model, transport)
        if opened is not None:
            undo.callback(opened.close)
        return opened, opened is not None

    def _opened(self, model: DistributedDataParallel, transport: str) -> Session | None:
        timeout = checked_timeout(self.timeout)
        group = model.process_group
        if dist.get_world_size(group) == 1:
            return None
        secret = job_secret(Environment.read())
        session, error = None, None
        deadline = time.monotonic() + timeout
        try:
            session = connect(
                group=group,
                job=self.job,
                socket=self.socket,
                arena_bytes=self.arena_bytes,
                timeout=timeout,
                config=self.config,
            )
        except DlcpError as exc:
            error = exc
        try:
            problem = transport_vote.hold(
                member_of(group, secret),
                error,
                fallback=self.fallback,
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
        text = (
            f"dlcpd is NOT in use, and {dist.get_backend(group)} averages the gradients: {problem}"
        )
        _log.error(text)
        warnings.warn(text, RuntimeWarning, stacklevel=4)  # the line that calls `register`
        return None
