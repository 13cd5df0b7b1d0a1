"""The open operations of a session, from submission to outcome.

No sockets here. Everything is guarded by `lock`: that of `changed`, a condition that is notified
when an operation ends.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable
from functools import partial
from itertools import chain
from typing import Any, Final

from dlcp_client.operations.held_memory import HeldMemory, Memory
from dlcp_client.operations.ledger import Ledgers
from dlcp_client.operations.parts import Parts
from dlcp_client.operations.patience import Pace
from dlcp_client.operations.work import Work
from dlcpd.contract.errors import (
    BadMessage,
    DeadlineExceeded,
    DlcpError,
    Peer,
    PeerLost,
    TooMany,
    error_for,
)
from dlcpd.contract.messages import MAX_OPERATION, Completed, Due, Failed, Left, Message, Released

log = logging.getLogger("dlcp_client")

MARGIN: Final = 2.0  # seconds after its deadline within which the engine must answer
# Seconds for other engines to answer after one has reported a lost peer. They detect the loss, too,
# and a peer that left has delivered to all of them.
GRACE: Final = 5.0


class Changed(threading.Condition):
    """A condition that knows whether a thread sleeps: to wake none costs a call."""

    sleeping = 0  # number of threads in `wait`

    def wait(self, timeout: float | None = None) -> bool:
        self.sleeping += 1
        try:
            return super().wait(timeout)
        finally:
            self.sleeping -= 1


class Operations:
    """The table. For methods whose name ends in `_locked`, the caller holds `lock`."""

    def __init__(
        self, on_ended_locked: Callable[[Work[Any]], None], pace: Pace | None = None
    ) -> None:
        self._on_ended_locked = on_ended_locked
        self.pace = pace or Pace()
        self.lock = threading.RLock()
        self.changed = Changed(self.lock)  # a lock is taken in C, a condition in Python
        self.error: DlcpError | None = None  # the reason why no operation can succeed any more
        self.ledgers = Ledgers()
        self.memory = HeldMemory()  # guarded by `lock`, too
        self.left: dict[int, int] = {}  # unconfirmed results, by engine that compared them
        self._last = 0
        self._announced: dict[int, Work[Any]] = {}  # by id, in order of submission
        self._waiting: dict[int, Work[Any]] = {}
        self._parts: dict[int, Parts] = {}  # of all but operations of engine 0 alone
        self._over_at = 0.0  # after an error: when the operations of other engines fail too

    @property
    def over(self) -> bool:
        """Whether no operation can succeed any more."""
        return self.error is not None

    @property
    def waiting(self) -> int:
        """Number of operations without an outcome."""
        return len(self._waiting)

    @property
    def drained(self) -> bool:
        """Whether every operation with an outcome is released: no peer needs its data."""
        return self.memory.within(self._waiting)

    def announce(self, work: Work[Any]) -> None:
        """Enter an operation that `begin` will submit later.

        Raises: the error that ended the session.
        """
        with self.lock:
            self.raise_if_over()
            self._announced[id(work)] = work

    def refuse(self, work: Work[Any], error: DlcpError) -> None:
        """Fail an announced operation that cannot be submitted, and all others of the session:
        peers count it, and would mistake the next one for it."""
        with self.lock:
            self._announced.pop(id(work), None)
            if not work.ended:
                self._end_locked(work, error)
        self.fail(error)

    def begin(self, work: Work[Any], memory: Memory, engines: Collection[int] = (0,)) -> int:
        """Enter an operation that is about to be submitted to `engines`. Returns its number.

        Raises: the error that ended the session; TooMany if the numbers are used up.
        """
        with self.lock:
            if self.error is not None:
                self.raise_if_over()
            if self._last == MAX_OPERATION:
                raise TooMany(f"{MAX_OPERATION} operations, the most of a session; connect again")
            if work.settled:  # announced, and expired
                raise _not_submitted(work)
            self._announced.pop(id(work), None)
            self._last += 1
            self._waiting[self._last] = work
            self.memory.hold(self._last, work, memory)
            if len(engines) > 1 or 0 not in engines:
                self._parts[self._last] = Parts.of(engines)
            return self._last

    def forget(self, number: int) -> None:
        """Undo the last `begin`: nothing was sent."""
        with self.lock:
            self._last = number - 1
            self._waiting.pop(number, None)
            self.memory.forget(number)
            self._parts.pop(number, None)

    def raise_if_over(self) -> None:
        """Raises: the error that ended the session, if it has ended."""
        if self.error is not None:
            raise error_for(self.error.code, str(self.error), self.error.peer)

    def fail(self, error: DlcpError) -> None:
        """End the session: every open and later operation raises the first `error`."""
        with self.lock:
            self.error = self.error or error
            self._fail_locked(self._waiting, self.error)
            self.changed.notify_all()

    def _fail_locked(self, numbers: Iterable[int], error: DlcpError) -> None:
        """Fail these waiting operations, and all announced ones."""
        for number in list(numbers):
            self._settle_locked(number, error)
        for work in self._taken_announced(lambda work: True):
            self._end_locked(work, error)

    def end_late(self, now: float) -> None:
        """After an error: fail operations that other engines have not answered in time."""
        if self.error is not None and self._waiting and now >= self._over_at:
            self.fail(self.error)

    def _end_session_locked(self, engine: int, error: DlcpError) -> None:
        """End the session with an error of an engine. If that is the loss of a peer, this engine's
        operations fail first."""
        if not isinstance(error, PeerLost):
            self.fail(error)
            return
        if self.error is None:
            self.error, self._over_at = error, time.monotonic() + GRACE
        self._fail_locked(filter(partial(self._awaits, engine), self._waiting), self.error)

    def _awaits(self, engine: int, number: int) -> bool:
        """Whether an operation still lacks the answer of an engine."""
        parts = self._parts.get(number)
        return engine in parts.unanswered if parts else engine == 0

    def handle_locked(self, message: Message, engine: int = 0) -> None:
        """Handle a frame of an engine. Idempotent."""
        match message:
            case Completed(operation=number):
                parts = self._parts.get(number)
                outcome = message if parts is None else parts.answer(engine, message)
                self._settle_locked(number, outcome)
                if released := [number] * message.released + message.also_released:
                    self._release_locked(released, engine)
            case Released(operation=number):
                self._release_locked([number], engine)
            case Due(operation=number):
                work = self._waiting.get(number)  # none: it has failed here
                if work is not None and work.due is not None:
                    work.due.add(engine, message)
            case Left(unconfirmed=unconfirmed):
                self.left[engine] = unconfirmed
            case Failed(operation=0):
                self._end_session_locked(engine, _error_in(message))
            case Failed(operation=number):
                if number in self.memory and number not in self._waiting:
                    log.warning("a message that was sent could not be delivered: %s", message.text)
                self._settle_locked(number, _error_in(message))
                self._release_locked([number], engine)
            case _:
                self.fail(BadMessage(f"the engine sent {type(message).__name__} on the lane"))

    def expire(self, now: float) -> None:
        """Abort operations that the engine left unanswered past their deadline.

        Their memory stays held: a stopped engine that resumes may write to it.
        """
        with self.lock:
            for number, work in list(self._waiting.items()):
                if work.expires <= now:
                    self._settle_locked(number, _unanswered(number, work))
            for work in self._taken_announced(lambda work: work.expires <= now):
                self._end_locked(work, _not_submitted(work))
            self.changed.notify_all()

    def next_expiry(self, idle: float = 3600.0) -> float:
        """Monotonic time at which `expire` has work; in `idle` seconds if nothing is open."""
        with self.lock:
            open_ = chain(self._waiting.values(), self._announced.values())
            soonest = min((work.expires for work in open_), default=None)
        return time.monotonic() + idle if soonest is None else soonest

    def oldest(self) -> tuple[int, Work[Any]] | None:
        """Number and work of the operation that has waited longest for an outcome."""
        with self.lock:
            return next(iter(self._waiting.items()), None)

    def copy_out(self) -> bool:
        """Copy results to their tensors, to free the arena.

        False: there were none.
        """
        with self.lock:
            ended = self.memory.ended()
        copied = [work.copy_out() for work in ended]
        return any(copied)

    def let_go(self) -> None:
        """Release all memory: the session is closed, and its arena makes no new allocations."""
        with self.lock:
            self.memory.clear()
            self._parts.clear()

    def abandon(self, error: DlcpError) -> None:
        """In a forked child: end everything. A thread that held the lock does not exist here."""
        self.lock = threading.RLock()
        self.changed = Changed(self.lock)
        self.error = error
        for work in (*self._waiting.values(), *self._announced.values()):
            work.settle(error)
        self._waiting.clear()
        self._announced.clear()

    def _settle_locked(self, number: int, outcome: Completed | DlcpError | None) -> None:
        """None: engines are still to answer."""
        work = self._waiting.get(number)
        if work is None or outcome is None:
            return
        # Counted before the outcome is visible: a thread that waits sees it without the lock, and
        # may read the totals at once.
        if isinstance(outcome, Completed):
            self.ledgers.add(work.bounded_as, outcome)
            work.took = time.monotonic() - work.begun
            self.pace.took(work.took)
            if work.seconds is not None:
                work.seconds.append(work.took)
        work.settle(outcome)
        self._on_ended_locked(work)
        del self._waiting[number]

    def _end_locked(self, work: Work[Any], outcome: Completed | DlcpError) -> None:
        work.settle(outcome)
        self._on_ended_locked(work)

    def _taken_announced(self, which: Callable[[Work[Any]], bool]) -> list[Work[Any]]:
        taken = [work for work in self._announced.values() if which(work)]
        for work in taken:
            del self._announced[id(work)]
        return taken

    def _release_locked(self, numbers: Iterable[int], engine: int) -> None:
        for number in numbers:
            parts = self._parts.get(number)
            if parts is None or parts.release(engine):
                self._parts.pop(number, None)
                self.memory.release(number)


def _error_in(failed: Failed) -> DlcpError:
    peer = Peer(failed.rank, failed.host, failed.address, failed.awaiting)
    return error_for(failed.code, failed.text, peer)


def _unanswered(number: int, work: Work[Any]) -> DeadlineExceeded:
    return DeadlineExceeded(
        f"operation {number} ({work.label}): no answer from this host's dlcpd {MARGIN:g} s after "
        f"its deadline (deadline= of its policy); its engine is stopped or starved of CPU: see its "
        f"log, then restart the job"
    )


def _not_submitted(work: Work[Any]) -> DeadlineExceeded:
    return DeadlineExceeded(
        f"{work.label}: not submitted by its deadline (deadline= of its policy), for its tensor, "
        f"or one before it, did not come from the device: a kernel does not end, or the arena has "
        f"no room; restart the job"
    )
