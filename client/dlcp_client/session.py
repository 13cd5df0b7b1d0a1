"""A rank's session with its daemon: submits operations, makes arrays in the arena, closes."""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, Self, Unpack, cast

from dlcp_client.arena.blocks import A, Library
from dlcp_client.connection import Connection, JoinedJob
from dlcp_client.device.seam import Event
from dlcp_client.ipc.handshake import STATUS_TIMEOUT
from dlcp_client.job.group_numbers import GroupNumbers
from dlcp_client.operations.computations import Compute
from dlcp_client.operations.ledger import Ledger
from dlcp_client.operations.requests import AllReduceOptions
from dlcp_client.operations.work import Work
from dlcpd.contract.errors import BadConfig, DlcpError
from dlcpd.contract.messages import OpenGroup

from . import lifetimes
from .group import Group


class Session(Generic[A]):
    """One rank of one job. Every rank submits the same operations in the same order.

    Thread-safe; the caller then orders operations across threads. A forked child cannot use its
    parent's session.
    """

    def __init__(self, joined: JoinedJob) -> None:
        self.job, self.rank, self.world_size = joined.job, joined.rank, joined.world_size
        self.hosts: Final = joined.hosts
        self.origin: Final = joined.origin
        self.library: Final[Library[A]] = joined.library
        self._connection: Connection[A] = Connection(joined)
        self._closing = threading.Lock()
        self._numbers = GroupNumbers(joined.store, joined.job, joined.rank, joined.secret)
        self.world: Group[A] = Group(
            self, self._connection.submission, 0, range(joined.world_size), ""
        )
        self._open = True
        self._at_close: list[Callable[[], None]] = []
        lifetimes.opened(self)

    def all_reduce(
        self, tensor: A, op: Any = "sum", **options: Unpack[AllReduceOptions[A]]
    ) -> Work[A]:
        """Reduce `tensor` over all ranks, in place. Returns before the end.

        Args:
            tensor: a contiguous tensor of float32, float64, float16, bfloat16, int8, int16,
                int32, int64, uint8, bool, complex64 or complex128, on the CPU or a CUDA device.
                One from `empty`, or a view of it, is used in place; any other is copied to the
                arena and back. Do not touch it until the work is done. An empty tensor is done
                at once, and must be empty on all ranks. For devices, see docs/cuda.md.
            op: "sum", "avg" (not of integers or bool), "product", "min", "max" (not of complex
                numbers), "band", "bor", "bxor" (of integers and bool), or the dist.ReduceOp.
            policy: the bound on loss, and the deadline of the operation.
            name: of the gradient; required by a bounded policy.
            exempt: [start, stop) ranges in bytes that are never waived.
            layers: (first byte, traffic class), ascending from 0: the bytes from there on have
                that class, and the policy's bound for it. By default the whole tensor has the
                policy's own class.
            schedule: name of the schedule (docs/collectives.md); empty: the daemon chooses by
                size, ranks and hosts.
            scale: loss scale of the values, from GradScaler.get_scale(). A residual of another
                scale is reapplied in this one.
            into: receives the result instead. A `tensor` of `empty` then holds this rank's
                contribution; in a bounded operation that includes the residual.
            result_only: the caller will only read the tensor (one from `empty`) after the
                end, then drop it. Done sooner: peers may still fetch parts of it.

        Raises: BadTensor, BadPolicy, ArenaFull, DeadlineExceeded, or the error that ended the
        session.
        """
        return self.world.all_reduce(tensor, op, **options)

    def compute(self, pending: Mapping[Work[A], Compute], *, wait: bool = True) -> None:
        """Compute this rank's parts of operations of `Group.all_reduce_computed`; then wait for
        each, since the parts of other ranks arrive later. `pending`: how, by operation. `wait`:
        for parts whose sums are not here yet. Raises: as `Computations.run`."""
        self._connection.computations.run(pending, wait=wait)

    def await_sums(self, works: Sequence[Work[A]]) -> list[list[tuple[int, int]]]:
        """Wait for the sums of this rank's parts of such operations, and compute nothing. Returns
        their bytes [start, stop), by operation. Raises: as `Computations.await_sums`."""
        return self._connection.computations.await_sums(works)

    def group(self, ranks: Sequence[int], name: str = "", *, timeout: float = 60.0) -> Group[A]:
        """A group of some ranks of the session, in the order of `ranks`.

        All members, and only they, call it, with the same ranks and name, in the same order as
        their other calls for these ranks. `timeout`: seconds to wait for the first member.

        Raises: BadConfig, PeerLost.
        """
        known = set(range(self.world_size))
        listed: Any = ranks  # a caller without a type checker may give anything
        plain = isinstance(listed, Sequence) and all(type(rank) is int for rank in listed)
        if not plain or len(set(ranks)) != len(ranks) or not set(ranks) <= known:
            raise BadConfig(
                f"the group of ranks {ranks!r:.80} is not valid: give different ranks of "
                f"0..{self.world_size - 1}"
            )
        if not isinstance(name, str):
            raise BadConfig(f"the name {name!r:.80} of a group is not valid: give a text")
        if self.rank not in ranks:
            raise BadConfig(
                f"the group of ranks {list(ranks)} does not contain this rank, {self.rank}"
            )
        number, title = self._numbers.agree(ranks, name, timeout)
        self._connection.submission.say(OpenGroup(number, title, list(ranks)))
        return Group(self, self._connection.submission, number, ranks, name)

    def empty(
        self,
        shape: int | Sequence[int],
        dtype: Any = None,
        *,
        wait: float = 0.0,
    ) -> A:
        """An uninitialised tensor in the arena, which `all_reduce` uses without a copy.

        `dtype`: of the library; float32 by default. Its memory is freed after the tensor, its views
        and the operations on it are gone. `wait`: seconds to wait for operations in flight if there
        is no space.

        Raises: ArenaFull, or the error that ended the session.
        """
        self._connection.table.raise_if_over()
        sizes = (shape,) if isinstance(shape, int) else shape
        allocate = partial(self.library.empty, self._connection.arena, sizes, dtype)
        return self._connection.places.room(allocate, time.monotonic() + wait)

    def released(self, work: Work[A], wait: float = 0.0) -> bool:
        """Whether peers have the data of a completed operation, so that its tensor may be written
        again; waits for up to `wait` seconds. Raises: the error that ended the session."""
        if not work.released:
            until = time.monotonic() + wait
            self._connection.places.wait_for(lambda: work.released, until)
        return work.released

    def fetch(self, into: A, array: A) -> Event:
        """Begin to copy an array of a device to one of `empty`, of the same bytes, after earlier
        work of this thread's current stream. The caller touches neither before the event.

        Raises: ArenaFull where memory cannot be locked and must be; DeviceFailed.
        """
        places, block = self._connection.places, self.library.block
        return places.fetch(block(into), block(array))

    def deliver(self, array: A, source: A) -> Event:
        """The reverse of `fetch`; this thread's current stream then waits for it. The caller
        changes `source` only after the event. Raises: as `fetch`."""
        places, block = self._connection.places, self.library.block
        return places.deliver(block(array), block(source))

    def zeros(self, shape: int | Sequence[int], dtype: Any = None, *, wait: float = 0.0) -> A:
        """As `empty`, filled with 0."""
        made: Any = self.empty(shape, dtype, wait=wait)
        made[...] = 0
        return cast("A", made)

    @property
    def ledger(self) -> Ledger:
        """Totals of the completed operations."""
        return self._connection.table.ledgers.whole

    def bounded(self, names: Collection[str]) -> dict[str, Ledger]:
        """Totals of the bounded operations by name, for those of `names` that had any. The session
        keeps totals of its first 4,096 names."""
        return self._connection.table.ledgers.bounded(names)

    def status(self, timeout: float = STATUS_TIMEOUT) -> dict[str, Any]:
        """The daemon's status report (docs/ipc.md, "Status"); {} without an answer within `timeout`
        seconds, or while another thread of this process asks."""
        return self._connection.control.report(timeout)

    @property
    def epoch(self) -> int:
        """Number of times that the job has changed its ranks: 0 after `connect`."""
        return self.origin.epoch if self.origin else 0

    def failure(self, *, look: bool = True) -> DlcpError | None:
        """The reason why no operation can succeed any more; None: none is known.

        look: first read the frames that have arrived, and settle their operations; else return only
            errors that operations have met so far.
        """
        if look:
            self._connection.lanes.pump()
        return self._connection.table.error

    @property
    def number(self) -> int:
        """The daemon's number of the session."""
        return self._connection.control.session

    @property
    def arena_bytes(self) -> int:
        """The most bytes of tensors in flight and in `empty`."""
        return self._connection.arena.size

    @property
    def arena_used(self) -> int:
        """Bytes of tensors in flight and in `empty`."""
        return self._connection.arena.used

    def adopt_daemon(self, earlier: "Session[A]") -> None:
        """Take over the private daemon of an earlier session, if that has one: it then ends with
        this session."""
        mine = self._connection
        its = earlier._connection  # noqa: SLF001  # of the same class
        if mine.daemon is None:
            mine.daemon, its.daemon = its.daemon, None

    @property
    def daemon_pid(self) -> int | None:
        """Process id of the embedded daemon; None if the daemon is the host's."""
        daemon = self._connection.daemon
        return daemon.pid if daemon else None

    def at_close(self, call: Callable[[], None]) -> None:
        """Register a function that `close` calls first. It must not raise."""
        self._at_close.append(call)

    def close(self) -> None:
        """Leave the job. Waits until peers have the data that they need of completed operations.

        Operations without an outcome fail with SessionClosed. A second call does nothing.

        Raises: ReplicaDivergence if peers have other results of the last operations; the session is
        closed nevertheless.
        """
        with self._closing:
            if not self._open:
                return
            self._open = False
            for call in self._at_close:
                call()
            diverged = self._connection.close()
        lifetimes.closed(self)
        if diverged is not None:
            raise diverged

    def abandon(self) -> None:
        """In a forked child: drop everything that belongs to the parent. The fork calls it."""
        self._open = False
        self._closing = threading.Lock()
        self._connection.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
