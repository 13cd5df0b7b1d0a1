"""A rank's session with its daemon: submit all-reduces, make arena tensors, close."""

import gc
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import torch

from dlcpd.contract.errors import ArenaFull, DlcpError, SessionClosed
from dlcpd.contract.messages import Submit
from dlcpd.contract.policy import EXACT, LossPolicy

from . import lifetimes
from .completion import Completion
from .embedded import Embedded
from .handshake import Door
from .lane import Lane
from .layers import Layer
from .ledger import Ledger
from .memory import Region, SharedArena
from .operations import MARGIN, Operations
from .packets import encode
from .requests import Range, request
from .tensors import copy_bytes
from .work import Work

T = TypeVar("T")

MAX_HELD: Final = 512  # operations whose memory is held; half of what the engine takes
DRAIN_TIMEOUT: Final = 5.0  # seconds in which peers fetch what close() would take away


@dataclass(frozen=True, slots=True)
class Seat:
    """What joining a job yielded. The session takes over all of it."""

    job: str
    rank: int
    world_size: int
    door: Door
    lane: int  # descriptor
    arena: int  # descriptor
    arena_bytes: int
    daemon: Embedded | None  # when it is ours


class Session:
    """One rank of one job. Every rank submits the same operations in the same order.

    Safe to use from threads; the order across threads is then the caller's matter.
    A forked child cannot use its parent's session.
    """

    def __init__(self, seat: Seat) -> None:
        self.job, self.rank, self.world_size = seat.job, seat.rank, seat.world_size
        self._daemon, self._door = seat.daemon, seat.door
        self._submitting = threading.Lock()  # numbers leave in the order they are given
        self._closing = threading.Lock()
        self._completion = Completion()
        self._table = Operations(self._completion.ended_locked)
        lane = socket.socket(fileno=seat.lane)
        try:
            self._arena = SharedArena(seat.arena, seat.arena_bytes)
        except BaseException:
            lane.close()
            raise
        door = seat.door
        self._lane = Lane(lane, door.socket, self._table, door.obituary, door.waiting_for)
        self._open = True
        lifetimes.opened(self)

    def all_reduce(  # noqa: PLR0913  # all but the first two by keyword
        self,
        tensor: torch.Tensor,
        op: Any = "sum",
        *,
        policy: LossPolicy = EXACT,
        name: str | None = None,
        critical: Iterable[Range] = (),
        layers: Iterable[Layer] = (),
        scale: float = 1.0,
        result_only: bool = False,
    ) -> Work:
        """Reduce `tensor` over all ranks, in place. Returns before the end.

        Args:
            tensor: a contiguous CPU tensor of float32, float64, float16, bfloat16, int32 or
                int64 ("avg": not of integers). One from `empty`, or a view of it, is used
                where it is; any other is copied to the arena and back. Leave it alone
                until the work is done. An empty tensor is done at once, and must be
                empty on all ranks.
            op: "sum", "avg", "min", "max", or the dist.ReduceOp.
            policy: what may be lost, and when the operation fails for good.
            name: of the gradient; required by a bounded policy.
            critical: [start, stop) ranges in bytes that are never given up.
            layers: (first byte, traffic class), ascending from 0: what lies from there on is
                served in that class, within the policy's bound for it. By default all of
                the tensor is in the policy's own class.
            scale: loss scale that the values carry, as GradScaler.get_scale() says. What was given
                up under another scale is brought back in this one.
            result_only: the caller will only read the tensor (one from `empty`) after the
                end, then drop it. Done sooner: peers may still fetch parts of it.

        Raises: BadTensor, BadPolicy, ArenaFull, DeadlineExceeded, or what ended the session.
        """
        asked = request(
            tensor, op, policy, name=name, critical=critical, layers=layers, scale=scale
        )
        self._lane.pump()  # outcomes of operations that nobody waits for must not pile up
        self._table.raise_if_over()
        if not tensor.numel():
            return Work.over(self, tensor)
        deadline = time.monotonic() + policy.deadline
        in_place = self._arena.can_reduce(tensor)
        region = None if in_place else self._staged(tensor, deadline)
        if self._table.held >= MAX_HELD:
            self._wait_for(lambda: self._table.held < MAX_HELD, deadline)
        work = Work(
            self,
            tensor=tensor,
            region=region,
            expires=time.monotonic() + policy.deadline + MARGIN,
            label=f"{asked.reduce} of {asked.count} {asked.dtype} {asked.name}".rstrip(),
        )
        offset = self._arena.offset_of(tensor) if region is None else region.offset
        packet_of = partial(asked.submit, offset=offset, in_place=in_place and not result_only)
        self._submit(work, tensor if region is None else region, packet_of)
        return work

    def empty(
        self,
        shape: int | Sequence[int],
        dtype: torch.dtype = torch.float32,
        *,
        wait: float = 0.0,
    ) -> torch.Tensor:
        """An uninitialised tensor in the arena, which `all_reduce` uses without a copy.

        Its memory is free again when it, its views and the operations on it are gone.
        `wait`: seconds to wait for operations in flight when there is no room.

        Raises: ArenaFull, or what ended the session.
        """
        self._table.raise_if_over()
        sizes = (shape,) if isinstance(shape, int) else shape
        return self._room(partial(self._arena.empty, sizes, dtype), time.monotonic() + wait)

    @property
    def ledger(self) -> Ledger:
        """Totals over the completed operations."""
        return self._table.ledger

    @property
    def daemon_pid(self) -> int | None:
        """Process id of the embedded daemon; None when the daemon is the host's."""
        return self._daemon.pid if self._daemon else None

    def close(self) -> None:
        """Leave the job. Waits until peers have what they need of completed operations.

        Operations without an outcome fail with SessionClosed. Closing twice is fine.
        """
        with self._closing:
            if not self._open:
                return
            self._open = False
            table = self._table
            over = time.monotonic() + DRAIN_TIMEOUT
            self._lane.wait_until(lambda: table.error is not None or table.drained, over)
            self._lane.close()
            self._completion.close(table)
            self._arena.close()
            if self._daemon:
                self._daemon.close()
        lifetimes.closed(self)

    def abandon(self) -> None:
        """In a forked child: drop what is the parent's. Called by the fork itself."""
        self._open = False
        self._submitting, self._closing = threading.Lock(), threading.Lock()
        self._table.abandon(SessionClosed("this session is the parent process's; connect anew"))
        self._completion.abandon()
        self._lane.abandon()
        self._arena.abandon()
        if self._daemon:
            self._daemon.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- Progress, for works ----------------------------------------------------------

    def wait_until(self, done: Callable[[], bool], until: float) -> bool:
        """Take in frames until `done()`; False when the monotonic time `until` passed first."""
        return self._lane.wait_until(done, until)

    def pump(self) -> None:
        """Take in the frames that are there."""
        self._lane.pump()

    def expire(self, now: float) -> None:
        """Give up operations that the engine left unanswered for too long."""
        self._table.expire(now)

    def watch(self, work: Work) -> None:
        """Complete a work's Future after its end, even if nobody waits."""
        self._completion.watch(work, self._table, self._lane)

    # --- submitting -------------------------------------------------------------------

    def _submit(
        self, work: Work, memory: torch.Tensor | Region, message: Callable[[int], Submit]
    ) -> None:
        with self._submitting:
            number = self._table.begin(work, memory)
            try:
                packet = encode(message(number))
                self._lane.send(packet, work.expires - MARGIN)
            except DlcpError:
                self._table.forget(number)  # nothing was sent
                raise
            except BaseException:  # Ctrl-C: sent or not, who knows
                self._table.fail(
                    SessionClosed(
                        f"operation {number} was interrupted while it was submitted: the ranks "
                        f"may not agree on its number any more; connect again"
                    )
                )
                raise

    def _staged(self, tensor: torch.Tensor, deadline: float) -> Region:
        """A copy of `tensor` in the arena."""
        region = self._room(partial(self._arena.region, tensor.nbytes), deadline)
        copy_bytes(region.address, tensor.data_ptr(), tensor.nbytes)
        return region

    def _room(self, allocate: Callable[[], T], deadline: float) -> T:
        """What `allocate` yields; waits for operations in flight when there is no room.

        Raises: ArenaFull; what ended the session.
        """
        while True:
            seen = self._table.releases
            try:
                return allocate()
            except ArenaFull:
                self._lane.pump()
                if self._released_since(seen) or self._table.copy_out():
                    continue  # memory came free: of a release, or of results nobody fetched yet
                if not self._table.held or time.monotonic() >= deadline:
                    break
            self._wait_for(partial(self._released_since, seen), deadline)
        gc.collect()  # tensors in reference cycles; last, for it takes a trainer 0.1 s and more
        return allocate()

    def _released_since(self, seen: int) -> bool:
        return self._table.releases != seen

    def _wait_for(self, done: Callable[[], bool], deadline: float) -> None:
        """Wait until `done()` or `deadline`, whichever is first.

        Raises: what ended the session.
        """
        table = self._table
        self._lane.wait_until(lambda: table.error is not None or done(), deadline)
        table.raise_if_over()
