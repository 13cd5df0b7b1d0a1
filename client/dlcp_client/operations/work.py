"""A submitted operation: wait for it, test it, or chain a Future to it."""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeVar, cast

from dlcp_client.arena.blocks import A, Block, Library
from dlcp_client.arena.memory import Region
from dlcp_client.device.seam import Event
from dlcp_client.operations.due_steps import DueSteps
from dlcp_client.operations.results import Deliver, copy_result
from dlcpd.contract.errors import BadTensor, DeviceFailed, DlcpError, error_for
from dlcpd.contract.messages import Completed

if TYPE_CHECKING:
    from torch.futures import Future

T = TypeVar("T")

LATE: Final = 1.0  # seconds for a wait after the deadline to read answers that have arrived

_NOTHING: Final = Completed(
    operation=1,
    released=True,
    sent=0,
    retransmitted=0,
    waived=0,
    reapplied=0,
    lost=0,
    energy=0.0,
    source=-1,
    also_released=[],
)


class Progress(Protocol):
    """Access to outcomes, provided by a session."""

    @property
    def library(self) -> Library[Any]:
        """The library of the arrays that receive results."""

    @property
    def number(self) -> int:
        """The daemon's number of the session."""

    def wait_until(self, done: Callable[[], bool], until: float) -> bool:
        """Process frames until `done()`; False if the monotonic time `until` passed first."""

    def pump(self) -> None:
        """Process the frames that have arrived."""

    def expire(self, now: float) -> None:
        """Abort operations whose answer is overdue."""

    def time(self, work: "Work[Any]", seconds: list[float]) -> None:
        """Append the time of `work` to `seconds`, at its end."""

    def watch(self, work: "Work[Any]") -> None:
        """Call `work.complete` on another thread after its end, even if no thread waits."""

    def deliver(self, target: Block[Any], region: Region, after: Event) -> Event:
        """Begin to copy a result to its device. Raises: DeviceFailed."""


class Work(Generic[A]):
    """One operation. `tensor` holds the result after `wait()`, or after `done()` returned True.

    On a device, this holds for later work on the calling thread's current stream.
    """

    def __init__(
        self,
        progress: Progress,
        *,
        block: Block[A],
        expires: float,
        label: str,
        after: Event | None = None,
    ) -> None:
        """`after`: the end of earlier work of the caller's stream on a device block."""
        self.tensor: A = block.array
        self.begun: Final = time.monotonic()  # monotonic time of submission
        self.expires: Final = expires  # monotonic; the engine has answered by then, or never will
        self.label: Final = label  # for errors
        self.number = 0  # in the session; 0: not yet submitted
        self.released = False  # no engine accesses its memory any more, and no peer needs it
        self.bounded_as = ""  # name for its losses in the totals; "": it is exact
        self.settled = False  # whether it has an outcome
        self.copied = False  # its result is copied from a region of the arena
        self.took = 0.0  # seconds from submission to a result
        self.seconds: list[float] | None = None  # receives `took`; `time` sets it
        self.due: DueSteps | None = None  # of an operation in which this client computes
        self._progress = progress
        self._region: Region | None = None  # region of the result; None: `tensor` itself
        self._deliver: Deliver = copy_result
        self._device, self._after = block.device, after
        self._landed: Event | None = None  # end of a started copy to the device
        self._outcome: Completed | DlcpError | None = None
        self._copying = threading.Lock()
        self._base: Future[None] | None = None  # made on request: most works have none
        self._future: Future[list[A]] | None = None

    @classmethod
    def over(cls, progress: Progress, block: Block[A]) -> Self:
        """The completed work of an operation without data."""
        work = cls(progress, block=block, expires=0.0, label="nothing")
        work.settle(_NOTHING)
        return work

    @property
    def ended(self) -> bool:
        """Whether there is an outcome."""
        return self.settled

    @property
    def stats(self) -> Completed | None:
        """Costs and losses of the operation; None before its end and after a failure."""
        return self._outcome if isinstance(self._outcome, Completed) else None

    @property
    def source(self) -> int:
        """Rank in the group whose message was received; -1 before the end, or if none was."""
        return -1 if self.stats is None else self.stats.source

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the result is in `tensor`; True, as torch's own Work.

        Raises: the DlcpError that ended the operation, at the latest shortly after its policy's
        deadline; TimeoutError after `timeout` seconds: the operation then continues, and `wait` may
        be called again.
        """
        ranges = self._progress.library.ranges
        if ranges is None or not ranges.on():
            return self._wait(timeout)
        with ranges.wait(self._progress.number, self.number, self.label):
            return self._wait(timeout)

    def _wait(self, timeout: float | None) -> bool:
        now = time.monotonic()
        over = self.expires if now < self.expires else now + LATE
        limit = over if timeout is None else min(over, now + timeout)
        if not self.settled and not self._progress.wait_until(self._is_over, limit):
            if limit < over:
                raise TimeoutError(f"{self.label}: not finished after {timeout:g} s; it goes on")
            self._progress.expire(time.monotonic())
        self._raise_or_copy()
        return True

    def result(self, timeout: float | None = None) -> A:
        """Wait, and return `tensor`. Raises: as `wait`."""
        self.wait(timeout)
        return self.tensor

    def done(self) -> bool:
        """Whether it has ended, without waiting; `wait()` then returns or raises at once."""
        if not self.ended:
            self._progress.pump()
        if self.stats is not None:
            self.copy_out()
            self._follow()
        return self.ended

    def get_future(self) -> "Future[list[A]]":
        """A Future of `[tensor]`, like that of torch's own Work. Every call returns the same one.

        After a failure its value() and wait() raise a RuntimeError with the error's text.
        """
        if self._future is None:
            self._future = self.then(lambda tensor: [tensor])
        return self._future

    def then(self, callback: Callable[[A], T]) -> "Future[T]":
        """A Future of callback(tensor), which runs after the end on a thread of the session."""

        # Never set_exception: DDP's default path crashes on it with a SIGSEGV. A callback that
        # raises gives the same Future an error that DDP can report.
        def run(_: "Future[None]") -> T:
            self._raise_or_copy()
            return callback(self.tensor)

        with self._copying:
            first = self._base is None
            base = self._base = self._base or self._new_future()
        chained = base.then(run)
        if first:
            self._progress.watch(self)
        return chained

    def time(self, seconds: list[float], *, watch: bool) -> None:
        """Append the seconds from submission to result, when it arrives; none after a failure.

        `watch`: let a thread of the session notice the end at once. Otherwise the caller's Future
        does: without either, it would be noticed when a thread next waits or submits.
        """
        self._progress.time(self, seconds)
        if watch:
            self._progress.watch(self)

    def lands_in(self, region: Region | None, deliver: Deliver = copy_result) -> None:
        """Set the region of the result, before the submission; None: `tensor` itself. `deliver`:
        from there to `tensor`, on this host."""
        self._region, self.copied, self._deliver = region, region is not None, deliver

    def settle(self, outcome: Completed | DlcpError) -> None:
        """Set the outcome. Called once."""
        self._outcome, self.settled = outcome, True
        if isinstance(outcome, DlcpError):
            self._region, self._deliver = None, copy_result

    def complete(self) -> None:
        """Run the callbacks of the Future, on this thread. Called once, after the end."""
        if self._base is not None:
            self._base.set_result(None)

    def copy_out(self) -> bool:
        """Copy the result to `tensor`, once, and release its region.

        False: there is nothing to copy. If `tensor` no longer fits the result, that error becomes
        the outcome.
        """
        with self._copying:
            region, self._region = self._region, None
            deliver, self._deliver = self._deliver, copy_result  # keeps no memory any longer
            if region is None:
                return False
            try:
                target = self._progress.library.block(self.tensor)  # it may have other memory now
                size = len(region.memory)
                if target.count * target.itemsize != size:
                    raise BadTensor(
                        f"{self.label}: of {size} B when it was submitted, its target has "
                        f"{target.nbytes} B now; leave it alone until the operation is done"
                    )
                if target.device is None or self._after is None:
                    deliver(target, region)
                else:
                    self._landed = self._progress.deliver(target, region, self._after)
            except (BadTensor, DeviceFailed) as exc:
                self._outcome = exc.with_traceback(None)  # which would keep `region` alive
            return True

    def arrive(self) -> None:
        """After the end, put the result into `tensor`, on this thread.

        Raises: the error that ended the operation.
        """
        self._raise_or_copy()

    def _is_over(self) -> bool:  # for `wait_until`; a lambda would be made at each wait
        return self.settled

    def _follow(self) -> None:
        if self._device is not None and self._landed is not None:
            self._device.follow(self._landed)

    def _new_future(self) -> "Future[None]":
        if self._device is not None:
            return cast("Future[None]", self._device.future())
        from torch.futures import Future  # noqa: PLC0415  # only Futures need torch

        return Future()

    def _raise_or_copy(self) -> None:
        if self.copied and isinstance(self._outcome, Completed):
            self.copy_out()
        outcome = self._outcome
        if isinstance(outcome, DlcpError):  # a new one: each raise extends the traceback
            raise error_for(outcome.code, str(outcome), outcome.peer)
        if outcome is None:
            raise DlcpError(f"{self.label}: waited for, and yet without an outcome")
        if self._device is not None:
            self._follow()
