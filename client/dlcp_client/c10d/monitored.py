"""A barrier that says who did not come: rank 0 hears from every rank, then answers."""

import time
from typing import Final

import torch

from dlcpd.contract.errors import DeadlineExceeded, DlcpError, PeerLost
from dlcpd.contract.policy import LossPolicy, exact

from .transport import MAX_TAG, Group, Work

TAG: Final = MAX_TAG  # no caller's message carries it
MIN_LEFT: Final = 0.01  # seconds; a deadline that is over already is no policy
ANSWER: Final = 1  # byte; any other is a bug


def await_ranks(group: Group, timeout: float, *, every: bool) -> None:
    """Return when all ranks have called it.

    Args:
        group: all its ranks call it.
        timeout: seconds.
        every: wait out the timeout for all ranks, and name all that are missing; else the
            first one.

    Raises: PeerLost: on rank 0 with the missing ranks, on others as rank 0 did not answer.
    """
    deadline = time.monotonic() + timeout
    if group.rank:
        _report(group, deadline, timeout)
        return
    peers = range(1, group.size)
    heard = {peer: _receive(group, peer, deadline) for peer in peers}
    missing = []
    for peer, work in heard.items():
        if _ended(work, deadline):
            continue
        missing.append(peer)
        if not every:
            break
    if missing:
        ranks = ", ".join(map(str, missing))
        raise PeerLost(f"monitored barrier: rank {ranks} did not come within {timeout:g} s")
    answers = [_send(group, peer, deadline) for peer in peers]
    for work in answers:
        work.wait()


def _report(group: Group, deadline: float, timeout: float) -> None:
    _send(group, 0, deadline).wait()
    try:
        _receive(group, 0, deadline).wait()
    except DlcpError as exc:
        raise PeerLost(
            f"monitored barrier: rank 0 did not let rank {group.rank} pass within {timeout:g} s; "
            f"its error names the ranks that did not come ({exc})"
        ) from exc


def _ended(work: Work, deadline: float) -> bool:
    try:
        return work.wait(max(0.0, deadline - time.monotonic()))
    except (DeadlineExceeded, PeerLost, TimeoutError):
        return False


def _until(deadline: float) -> LossPolicy:
    return exact(deadline=max(MIN_LEFT, deadline - time.monotonic()))


def _send(group: Group, peer: int, deadline: float) -> Work:
    token = torch.full((1,), ANSWER, dtype=torch.uint8)
    return group.send(token, peer, TAG, policy=_until(deadline))


def _receive(group: Group, peer: int, deadline: float) -> Work:
    return group.receive(torch.empty(1, dtype=torch.uint8), peer, TAG, policy=_until(deadline))
