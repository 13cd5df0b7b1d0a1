"""A barrier that names the missing ranks: rank 0 receives from every rank, then answers.

If a rank is missing, the barrier leaves no state: messages are matched by their tag, and the next
collective of the group is the next one on all ranks.
"""

import time
from typing import Any, Final, Protocol

import torch

from dlcpd.contract.errors import DeadlineExceeded, DlcpError, PeerLost
from dlcpd.contract.policy import LossPolicy, exact

MIN_LEFT: Final = 0.01  # seconds; no policy takes a deadline that has passed
ANSWER: Final = 1  # byte; any other is a bug


class MeetingGroup(Protocol):
    """The interface that a meeting needs of a group: see `dlcp_client.group`."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def send(self, tensor: torch.Tensor, peer: int, tag: int, *, policy: LossPolicy) -> Any: ...

    def receive(
        self, tensor: torch.Tensor, peer: int | None, tag: int, *, policy: LossPolicy
    ) -> Any: ...


def await_ranks(group: MeetingGroup, timeout: float, *, what: str, tag: int, every: bool) -> None:
    """Return when all ranks have called it.

    Args:
        group: all its ranks call it.
        timeout: seconds.
        what: name of the meeting, for errors.
        tag: of its messages; no other message may use it.
        every: wait until the timeout for all ranks, and name all that are missing; else only
            the first one.

    Raises: PeerLost: on rank 0 with the missing ranks, on others because rank 0 did not answer.
    """
    deadline = time.monotonic() + timeout
    if group.rank:
        _report(group, deadline, timeout, what, tag)
        return
    peers = range(1, group.size)
    heard = {peer: _receive(group, peer, deadline, tag) for peer in peers}
    missing = []
    for peer, work in heard.items():
        if _ended(work, deadline):
            continue
        missing.append(peer)
        if not every:
            break
    if missing:
        ranks = ", ".join(map(str, missing))
        raise PeerLost(f"{what}: rank {ranks} did not arrive within {timeout:g} s")
    answers = [_send(group, peer, deadline, tag) for peer in peers]
    for work in answers:
        work.wait()


def _report(group: MeetingGroup, deadline: float, timeout: float, what: str, tag: int) -> None:
    _send(group, 0, deadline, tag).wait()
    try:
        _receive(group, 0, deadline, tag).wait()
    except DlcpError as exc:
        raise PeerLost(
            f"{what}: rank 0 did not release rank {group.rank} within {timeout:g} s; the error "
            f"of rank 0 names the missing ranks ({exc})"
        ) from exc


def _ended(work: Any, deadline: float) -> bool:
    try:
        return bool(work.wait(max(0.0, deadline - time.monotonic())))
    except (DeadlineExceeded, PeerLost, TimeoutError):
        return False


def _until(deadline: float) -> LossPolicy:
    return exact(deadline=max(MIN_LEFT, deadline - time.monotonic()))


def _send(group: MeetingGroup, peer: int, deadline: float, tag: int) -> Any:
    token = torch.full((1,), ANSWER, dtype=torch.uint8)
    return group.send(token, peer, tag, policy=_until(deadline))


def _receive(group: MeetingGroup, peer: int, deadline: float, tag: int) -> Any:
    return group.receive(torch.empty(1, dtype=torch.uint8), peer, tag, policy=_until(deadline))
