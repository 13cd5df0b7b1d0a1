"""Reduction within hosts of several ranks: each rank then sends only a part of the host's sum.

A torch.distributed group (such as NCCL) reduces and scatters a bucket within the host. dlcpd
averages each rank's part over the hosts, with the ranks of the same local number. The group then
gathers the parts within the host. So each byte leaves a host once, for any number of ranks.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future

from dlcp_client.arena.submitter import Submitter
from dlcp_client.device.registry import device_of
from dlcp_client.device.seam import Device
from dlcp_client.group import Group
from dlcp_client.hooks.buckets import PlacedGradient, contents
from dlcp_client.hooks.rules import GradientRequest, Rules
from dlcp_client.operations.work import Work
from dlcp_client.session import Session
from dlcpd.contract.errors import BadConfig, DeviceFailed, DlcpError, PeerLost
from dlcpd.contract.policy import EXACT


@dataclass(slots=True)
class SharedBucket:
    """A bucket of which this rank averages one part over the hosts."""

    whole: torch.Tensor  # sum of the host; the average at the end
    part: torch.Tensor
    work: Work | None  # None: the submission failed
    device: Device | None
    done: "Future[None]"
    error: BaseException | None = None


class LocalGroup:
    """The ranks of this host. No other code may use `local` in a backward pass.

    All ranks call the collectives of `local` in one order. The backward pass scatters, by bucket; a
    thread gathers, also by bucket, after the last bucket of the step is scattered. Neither the
    arrival nor the failure of a part changes that: a rank that skipped a collective would block the
    others. So all take part in every collective, and then exchange whether a part is missing.
    """

    def __init__(self, local: dist.ProcessGroup, across: Group) -> None:
        self._local, self.across = local, across
        self.rank, self.size = dist.get_rank(local), dist.get_world_size(local)
        self._open: list[SharedBucket] = []  # buckets of this step
        self._gathering = Submitter()

    def average(self, bucket: GradBucket, rules: Rules) -> Future[torch.Tensor]:
        """Average a bucket, as DDP's hook. The Future raises an error of the submission."""
        if not bucket.index():
            self._open = []  # buckets of a failed backward pass
        buffer, count = bucket.buffer(), bucket.buffer().numel()
        device = device_of(buffer)
        with _aside(device, after=True):
            whole, part = self._scattered(buffer)
            low = self.rank * part.nbytes
            mine = _within(contents(bucket), low, low + part.nbytes)
            request = rules.request(mine, low, part.nbytes)
            work, error = self._submitted(part, request)
        done: Future[None] = Future() if device is None else device.future()
        shared = SharedBucket(whole, part, work, device, done, error)
        self._open.append(shared)
        average = done.then(lambda _: _result(shared, count))
        if bucket.is_last():
            open_, self._open = self._open, []
            self._gathering.put(lambda: self._gather(open_))
        return average

    def close(self) -> None:
        """Call after the last bucket."""
        self._gathering.close()
        with suppress(DlcpError):  # the session has already ended
            self.across.close()

    def _scattered(self, buffer: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns a buffer for the host's whole bucket, padded, and this rank's part, reduced.

        Values are divided before the sum, as in DDP, so that float16 does not overflow.
        """
        each = -(-buffer.numel() // self.size)
        whole = buffer.new_zeros(each * self.size)
        torch.div(buffer, self.size, out=whole[: buffer.numel()])
        part = buffer.new_empty(each)
        dist.reduce_scatter_single(part, whole, group=self._local)
        return whole, part

    def _submitted(
        self, part: torch.Tensor, request: GradientRequest
    ) -> tuple[Work | None, BaseException | None]:
        try:
            return self.across.all_reduce(part, "avg", **request.keywords()), None
        except DlcpError as exc:
            return None, exc

    def _gather(self, step: Sequence[SharedBucket]) -> None:
        """Gather, on the thread. A missing part fails the whole step, on all ranks of the host."""
        try:
            errors = [self._gathered(shared) for shared in step]
            error = self._agreed(next(filter(None, errors), None), step[0])
        except BaseException as exc:  # error of a collective within the host
            error = exc
        for shared in step:
            shared.error = error
            with _aside(shared.device, after=False):
                shared.done.set_result(None)  # on the stream aside, if there is one

    def _gathered(self, shared: SharedBucket) -> BaseException | None:
        """Gather one bucket. Returns the error of this rank's part, or None."""
        with _aside(shared.device, after=False):
            try:
                if shared.work is not None:
                    shared.work.wait()
            except DlcpError as exc:
                shared.error = exc
            dist.all_gather_single(shared.whole, shared.part, group=self._local)
        return shared.error

    def _agreed(self, error: BaseException | None, like: SharedBucket) -> BaseException | None:
        """The error of the step, if any rank of the host has one."""
        with _aside(like.device, after=False):
            failed = like.part.new_full((1,), float(error is not None))
            dist.all_reduce(failed, dist.ReduceOp.MAX, group=self._local)
            if error is None and bool(failed.item()):
                return PeerLost(
                    "another rank of this host failed to average its part of the bucket; see "
                    "the output of that rank"
                )
        return error


def local_group(local: dist.ProcessGroup, session: Session) -> LocalGroup | None:
    """The group of this host; None if all hosts have one rank. Every rank of the session calls it.

    Raises: BadConfig; the error that ended the session.
    """
    rank, size = dist.get_rank(local), dist.get_world_size(local)
    peers = _peers(session, rank, size)
    return LocalGroup(local, session.group(peers, "local-parts")) if size > 1 else None


def _result(shared: SharedBucket, count: int) -> torch.Tensor:
    """The average. Raises: the error of the bucket. `set_exception` would crash DDP."""
    error = shared.error
    if error is None:
        return shared.whole[:count]
    if isinstance(error, DlcpError):
        raise error
    raise DeviceFailed(
        f"gathering among the ranks of this host failed: {type(error).__name__}: {error}"
    )


def _aside(device: Device | None, *, after: bool) -> AbstractContextManager[Any]:
    if device is None:
        return nullcontext()
    return device.aside(device.mark() if after else None)


def _within(placed: Sequence[PlacedGradient], low: int, high: int) -> list[PlacedGradient]:
    """The gradients within bytes [low, high) of a bucket."""
    return [
        replace(one, start=max(one.start, low), stop=min(one.stop, high))
        for one in placed
        if one.start < high and low < one.stop
    ]


def _peers(session: Session, rank: int, size: int) -> list[int]:
    """The ranks of the session with the same local rank. Raises: BadConfig."""
    mine = torch.tensor([rank, size], dtype=torch.int32)
    table = torch.empty(2 * session.world_size, dtype=torch.int32)
    session.world.all_gather(table, mine, policy=EXACT).wait()
    rows = cast("list[list[int]]", table.view(-1, 2).tolist())
    peers = [number for number, (of, _) in enumerate(rows) if of == rank]
    if {row[1] for row in rows} != {size} or len(peers) * size != session.world_size:
        sizes = sorted({row[1] for row in rows})
        raise BadConfig(
            f"local= has groups of {', '.join(map(str, sizes))} ranks in a world of "
            f"{session.world_size}: all hosts need the same number of ranks, with each rank in "
            "one group; otherwise leave local= out"
        )
    return peers
