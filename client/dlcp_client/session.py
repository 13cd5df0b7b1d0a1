"""A rank's session with its daemon: submits operations, makes arrays in the arena, closes."""

import logging
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar, cast

from dlcp_client.arena.blocks import A, Block, Library
from dlcp_client.arena.memory import Region, SharedArena
from dlcp_client.device.seam import Device, Event
from dlcp_client.device.staging import Staging, device_errors
from dlcp_client.environment import Environment
from dlcp_client.ipc.embedded import Embedded
from dlcp_client.ipc.handshake import STATUS_TIMEOUT, ControlConnection
from dlcp_client.ipc.lanes import Lanes
from dlcp_client.job.group_numbers import GroupNumbers
from dlcp_client.job.origin import Origin
from dlcp_client.job.secret import JobSecret
from dlcp_client.job.store import Store
from dlcp_client.long_times import noted
from dlcp_client.operations.ask import Ask, Call
from dlcp_client.operations.completion import Completion
from dlcp_client.operations.engines import Engines
from dlcp_client.operations.joined import Joined, Piece
from dlcp_client.operations.layers import Layer
from dlcp_client.operations.ledger import Ledger
from dlcp_client.operations.open_operations import MARGIN, Memory, Operations
from dlcp_client.operations.patience import Pace
from dlcp_client.operations.places import Placed, Places, Plan
from dlcp_client.operations.requests import Range, Request
from dlcp_client.operations.work import LATE, Work
from dlcpd.contract.errors import (
    ArenaFull,
    BadConfig,
    BadTensor,
    DeviceFailed,
    DlcpError,
    ReplicaDivergence,
    SessionClosed,
    error_for,
)
from dlcpd.contract.messages import CloseGroup, Leave, OpenGroup, Submit
from dlcpd.contract.policy import EXACT, LossPolicy
from dlcpd.ipc.seqpacket import encode

from . import lifetimes
from .group import Group

T = TypeVar("T")

log = logging.getLogger("dlcp_client")

MAX_HELD: Final = 512  # operations whose memory is held; half of the engine's limit
SAY_TIMEOUT: Final = 10.0  # seconds for the engine to take a message about a group
# seconds; peers end with this rank, except for their last retransmissions
COMPARE_TIMEOUT: Final = 1.0
DRAIN_TIMEOUT: Final = 5.0  # seconds for peers to fetch data that close() would remove


@dataclass(frozen=True, slots=True)
class JoinedJob:
    """The result of joining a job. The session takes over all of it."""

    job: str
    rank: int
    world_size: int
    control: ControlConnection
    lanes: Sequence[int]  # descriptors, by engine
    arena: int  # descriptor
    arena_bytes: int
    daemon: Embedded | None  # if this process owns it
    store: Store | None = None  # through which groups agree on their numbers
    secret: JobSecret | None = field(default=None, kw_only=True)  # signs texts in the store
    origin: Origin | None = None  # data for regrouping; None: it is not possible
    library: Library[Any] = field(kw_only=True)  # of the session's arrays


class Session(Generic[A]):
    """One rank of one job. Every rank submits the same operations in the same order.

    Thread-safe; the caller then orders operations across threads. A forked child cannot use its
    parent's session.
    """

    def __init__(self, joined: JoinedJob) -> None:
        self.job, self.rank, self.world_size = joined.job, joined.rank, joined.world_size
        self.origin: Final = joined.origin
        self.library: Final[Library[A]] = joined.library
        self._daemon, self._control = joined.daemon, joined.control
        self._submitting = threading.Lock()  # operations leave in number order
        self._closing = threading.Lock()
        self._completion = Completion()
        environment = Environment.read()
        pace = Pace(environment.warn_after)
        self._table = Operations(self._completion.ended_locked, pace)
        lanes = [socket.socket(fileno=lane) for lane in joined.lanes]
        try:
            self._arena = SharedArena(joined.arena, joined.arena_bytes)
        except BaseException:
            for lane in lanes:
                lane.close()
            raise
        self._lanes = Lanes(lanes, joined.control, self._table)
        self._engines = Engines(len(lanes))
        self._staging = Staging(self._arena, environment.pinned)
        ranges = self._ranges = self.library.ranges
        self._places = Places(self._arena, self._staging, self._table, self._lanes, ranges)
        # By id: operations that get space when they are submitted. Threads add and remove.
        self._unplaced: set[int] = set()
        self._numbers = GroupNumbers(joined.store, joined.job, joined.rank, joined.secret)
        self.world = Group(self, 0, range(joined.world_size), "")
        self._open = True
        self._at_close: list[Callable[[], None]] = []
        lifetimes.opened(self)

    def all_reduce(  # noqa: PLR0913  # all but the first two by keyword
        self,
        tensor: A,
        op: Any = "sum",
        *,
        policy: LossPolicy = EXACT,
        name: str | None = None,
        exempt: Iterable[Range] = (),
        layers: Iterable[Layer] = (),
        schedule: str = "",
        scale: float = 1.0,
        result_only: bool = False,
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
            result_only: the caller will only read the tensor (one from `empty`) after the
                end, then drop it. Done sooner: peers may still fetch parts of it.

        Raises: BadTensor, BadPolicy, ArenaFull, DeadlineExceeded, or the error that ended the
        session.
        """
        return self.world.all_reduce(
            tensor,
            op,
            policy=policy,
            name=name,
            exempt=exempt,
            layers=layers,
            schedule=schedule,
            scale=scale,
            result_only=result_only,
        )

    def group(self, ranks: Sequence[int], name: str = "", *, timeout: float = 60.0) -> Group[A]:
        """A group of some ranks of the session, in the order of `ranks`.

        All members, and only they, call it, with the same ranks and name, in the same order as
        their other calls for these ranks. `timeout`: seconds to wait for the first member.

        Raises: BadConfig, PeerLost.
        """
        if sorted(set(ranks)) != sorted(ranks) or not set(ranks) <= set(range(self.world_size)):
            raise BadConfig(
                f"group of ranks {list(ranks)}: different ones of 0..{self.world_size - 1}"
            )
        if self.rank not in ranks:
            raise BadConfig(f"group of ranks {list(ranks)}: rank {self.rank} is no member")
        number, title = self._numbers.agree(ranks, name, timeout)
        self.say(OpenGroup(number, title, list(ranks)))
        return Group(self, number, ranks, name)

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
        self._table.raise_if_over()
        sizes = (shape,) if isinstance(shape, int) else shape
        allocate = partial(self.library.empty, self._arena, sizes, dtype)
        return self._places.room(allocate, time.monotonic() + wait)

    def zeros(self, shape: int | Sequence[int], dtype: Any = None, *, wait: float = 0.0) -> A:
        """As `empty`, filled with 0."""
        made: Any = self.empty(shape, dtype, wait=wait)
        made[...] = 0
        return cast("A", made)

    @property
    def ledger(self) -> Ledger:
        """Totals of the completed operations."""
        return self._table.ledger

    def bounded(self, names: Collection[str]) -> dict[str, Ledger]:
        """Totals of the bounded operations by name, for those of `names` that had any. The session
        keeps totals of its first 4,096 names."""
        return self._table.bounded(names)

    def status(self, timeout: float = STATUS_TIMEOUT) -> dict[str, Any]:
        """The daemon's status report (docs/ipc.md, "Status"); {} without an answer within `timeout`
        seconds, or while another thread of this process asks."""
        return self._control.report(timeout)

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
            self._lanes.pump()
        return self._table.error

    @property
    def number(self) -> int:
        """The daemon's number of the session."""
        return self._control.session

    @property
    def arena_bytes(self) -> int:
        """The most bytes of tensors in flight and in `empty`."""
        return self._arena.size

    def adopt(self, daemon: Embedded | None) -> None:
        """Take over the private daemon of an earlier session, to be closed with this session."""
        self._daemon = self._daemon or daemon

    def hand_over_daemon(self) -> Embedded | None:
        """The private daemon, if this process owns it; the caller must close it."""
        daemon, self._daemon = self._daemon, None
        return daemon

    @property
    def daemon_pid(self) -> int | None:
        """Process id of the embedded daemon; None if the daemon is the host's."""
        return self._daemon.pid if self._daemon else None

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
            table = self._table
            over = time.monotonic() + DRAIN_TIMEOUT
            self._lanes.wait_until(lambda: table.error is not None or table.drained, over)
            diverged = self._compare_last_results()
            self._lanes.close()
            self._completion.close(table)
            table.let_go()
            self._staging.close()
            self._arena.close()
            if self._daemon:
                self._daemon.close()
        lifetimes.closed(self)
        if diverged is not None:
            raise diverged

    def _compare_last_results(self) -> ReplicaDivergence | None:
        """Compare the last results. Earlier ones are compared as the next operation begins."""
        table, engines = self._table, range(self._engines.count)
        if self.world_size == 1 or table.over:
            return None
        until = time.monotonic() + COMPARE_TIMEOUT + LATE
        try:
            self._lanes.send(encode(Leave(COMPARE_TIMEOUT)), until, engines)
            self._lanes.wait_until(lambda: table.over or len(table.left) == len(engines), until)
        except DlcpError:
            return None  # the engine is gone; closing is no error
        if unconfirmed := sum(table.left.values()):
            log.warning("%d results of this session could not be compared: peers left", unconfirmed)
        return table.error if isinstance(table.error, ReplicaDivergence) else None

    def abandon(self) -> None:
        """In a forked child: drop everything that belongs to the parent. The fork calls it."""
        self._open = False
        self._submitting, self._closing = threading.Lock(), threading.Lock()
        self._table.abandon(SessionClosed("this session is the parent process's; connect anew"))
        self._completion.abandon()
        self._staging.abandon()
        self._lanes.abandon()
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
        """Process frames until `done()`; False if the monotonic time `until` passed first."""
        return self._lanes.wait_until(done, until)

    def pump(self) -> None:
        """Process the frames that have arrived."""
        self._lanes.pump()

    def expire(self, now: float) -> None:
        """Abort operations whose answer is overdue."""
        self._table.expire(now)

    def watch(self, work: Work[Any]) -> None:
        """Complete a work's Future after its end, even if no thread waits."""
        self._completion.watch(work, self._table, self._lanes)

    def deliver(self, target: Block[Any], region: Region, after: Event) -> Event:
        """Begin to copy a result to its device. Raises: DeviceFailed."""
        return self._staging.deliver(target, region, after)

    # --- submitting -------------------------------------------------------------------

    def say(self, message: OpenGroup | CloseGroup) -> None:
        """Send a message about a group to the engines. Raises: the error that ended the session."""
        self._table.raise_if_over()
        with self._submitting:
            until = time.monotonic() + SAY_TIMEOUT
            self._lanes.send(encode(message), until, range(self._engines.count))

    def run(  # common to a group's methods
        self,
        group: int,
        call: Call,
        output: Block[A],
        input: Block[A],
        asked: Request,
        *,
        result_only: bool = False,
    ) -> Work[A]:
        """Submit an operation of a group. `output` is `input` for an in-place operation."""
        if not output.writable:
            raise BadTensor(f"{call.collective} into a read-only array; give one of Session.empty")
        if output.dtype != input.dtype:
            raise BadTensor(f"{call.collective} of {input.dtype} into {output.dtype}: use one type")
        device = _device_of(call, output, input)
        self._lanes.pump()  # outcomes of unawaited operations must not pile up
        self._table.raise_if_over()
        if call.collective == "all_reduce" and not input.count:
            return Work.over(self, output)
        if device is not None:
            return self._run_staged(device, Ask(group, call, output, input, asked, result_only))
        plan = self._plan(Work, Ask(group, call, output, input, asked, result_only))
        if self._staging.idle:
            self._carry_out(plan)
        else:  # an earlier operation waits for a device
            self._submit_later(plan)
        return plan.work

    def _run_staged(self, device: Device, ask: Ask[A]) -> Work[A]:
        """Begin to copy to the arena; submit each piece after its copy."""
        with device_errors(device):
            after = device.mark()
        plans = [self._plan(Piece, part, after) for part in ask.cut(self.library)]
        for plan in plans:
            plan.work.bounded_as = ask.bounded_as  # name of the whole operation
        whole = Joined(self, ask.output, [cast("Piece[A]", plan.work) for plan in plans])
        try:
            for plan in plans:
                self._submit_later(plan)
                self.watch(plan.work)  # copies the result to the device without a wait
        except BaseException as exc:  # Ctrl-C: some of the pieces are submitted
            known = isinstance(exc, DlcpError)
            self._table.fail(_copy_of(exc) if known else _interrupted(ask.label))
            raise
        return whole

    def _plan(self, kind: type[Work[A]], ask: Ask[A], after: Event | None = None) -> Plan[A]:
        deadline = time.monotonic() + noted(ask.terms.policy.deadline)
        work = kind(self, block=ask.output, expires=deadline + MARGIN, label=ask.label, after=after)
        work.bounded_as = ask.bounded_as
        return Plan(ask, work, deadline, after)

    def _submit_later(self, plan: Plan[A]) -> None:
        """Submit after all earlier operations, and once the input is in the arena.

        Raises: the error that ended the session; DeviceFailed.
        """
        self._table.announce(plan.work)
        if not (plan.after and self._finds_place_now(plan)):
            self._unplaced.add(id(plan))
        self._staging.put(partial(self._carry_out_or_end, plan))

    def _finds_place_now(self, plan: Plan[A]) -> bool:
        """Start the device copy now if there is arena space.

        Do not overtake an operation that waits for space: this one leaves after it and may hold the
        space that it needs.
        """
        if self._unplaced:
            return False
        try:
            self._places.find(plan, None)
        except ArenaFull:  # or the memory is not locked: the staging thread tries again
            plan.source = plan.target = None
        return plan.placed

    def _carry_out_or_end(self, plan: Plan[A]) -> None:
        """Run `_carry_out` on the staging thread. An error becomes the outcome of the operation."""
        try:
            self._carry_out(plan)
        except DlcpError as exc:
            self._table.refuse(plan.work, _copy_of(exc))
        except BaseException as exc:
            text = f"{plan.work.label}: {type(exc).__name__}: {exc}"
            self._table.refuse(plan.work, DeviceFailed(text))
        self._unplaced.discard(id(plan))

    def _carry_out(self, plan: Plan[A]) -> None:
        """Submit an operation. Blocks until there is space and its input is in the arena."""
        if not plan.placed:
            self._places.find(plan, plan.until)
        source, target = cast("Placed", plan.source), cast("Placed", plan.target)
        # First: if a later step fails, the memory is reused while the copy runs.
        if source.ready is not None:
            with device_errors(plan.ask.input.device):
                source.ready.wait()
        if self._table.held >= MAX_HELD:
            self._places.wait_for(lambda: self._table.held < MAX_HELD, plan.until)
        plan.work.lands_in(target.region)
        message = plan.ask.message(source.offset, target.offset)
        message.submitted = plan.work.begun
        message.in_place = (source.direct or target.direct) and not plan.ask.result_only
        self._submit(plan.work, (source.memory, target.memory), message, plan.ask.output.itemsize)

    def _submit(self, work: Work[A], memory: Memory, message: Submit, item: int) -> None:
        with self._submitting:
            engines = self._engines.of(message, item)
            number = work.number = self._table.begin(work, memory, engines)
            try:
                message.operation, message.divided = number, len(engines) > 1
                self._send(message, work.expires - MARGIN, engines, item)
                self._engines.submitted(message)
            except DlcpError:
                self._table.forget(number)  # nothing was sent
                raise
            except BaseException:  # Ctrl-C: the message may have been sent
                self._table.fail(_interrupted(f"operation {number}"))
                raise

    def _send(self, message: Submit, until: float, engines: Sequence[int], item: int) -> None:
        ranges = self._ranges
        if ranges is None or not ranges.on():
            self._lanes.send(encode(message), until, engines)
            return
        with ranges.submission(self.number, message, item):
            self._lanes.send(encode(message), until, engines)


def _device_of(call: Call, output: Block[Any], input: Block[Any]) -> Device | None:
    """The device of an operation's non-empty arrays. Raises: BadTensor."""
    devices = {id(one.device): one.device for one in (output, input) if one.count}
    if len(devices) > 1:
        raise BadTensor(
            f"{call.collective} between {' and '.join(map(_name, devices.values()))}: give tensors "
            f"of one device"
        )
    return next(iter(devices.values()), None)


def _name(device: Device | None) -> str:
    return device.name if device else "the CPU"


def _interrupted(what: str) -> SessionClosed:
    return SessionClosed(
        f"{what} was interrupted while it was submitted: the ranks may not agree on its number any "
        f"more; connect again"
    )


def _copy_of(error: Any) -> DlcpError:
    """The error without its traceback, which would keep the memory of the operation alive."""
    return error_for(error.code, str(error), error.peer)
