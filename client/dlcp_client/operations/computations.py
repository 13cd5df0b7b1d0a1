"""Computes the steps that engines leave to this client, on the thread that calls `run`."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from dlcp_client.operations.lanes import Lanes
from dlcp_client.operations.open_operations import Operations
from dlcp_client.operations.work import Work
from dlcpd.contract.errors import DlcpError
from dlcpd.contract.frames import encode
from dlcpd.contract.messages import MAX_TEXT, Computed, Due
from dlcpd.contract.printable import harmless

# Bytes [start, stop) of the result, from the same bytes of the sums
Compute = Callable[[int, int], None]


class Computations:
    """Takes due steps from the table, and answers over the lanes."""

    def __init__(self, lanes: Lanes, table: Operations) -> None:
        self._lanes: Final = lanes
        self._table: Final = table

    def run(self, pending: Mapping[Work[Any], Compute], *, wait: bool = True) -> None:
        """Compute the steps of these operations as they become due, until each has none left; of
        several due steps, the first operation's. Without `wait`, compute those that are due.

        If a computation raises, its operation fails at once, here and on the peers, with
        ComputationFailed here. So do the other operations, as their steps become due: the peers
        wait for them, too. Raises: that exception; the error that ended the session.
        """
        try:
            self._run(pending, wait=wait)
        except Exception as exc:
            with suppress(DlcpError):  # without a session, the peers know already
                self._run(pending, wait=wait, error=_text_of(exc))
            raise

    def _run(self, pending: Mapping[Work[Any], Compute], *, wait: bool, error: str = "") -> None:
        """As `run`. With an error, every step fails for that reason instead."""
        open_ = dict(pending)
        while open_:
            self._lanes.pump()
            open_ = {work: compute for work, compute in open_.items() if _is_open(work)}
            ready = next((work for work in open_ if work.due), None)
            if ready is not None:
                self._compute(ready, open_[ready], error)
            elif not wait:
                return
            else:
                self._wait(partial(_any_moves, tuple(open_)), open_)

    def await_sums(self, works: Sequence[Work[Any]]) -> list[list[tuple[int, int]]]:
        """Wait until all steps of these operations are due, and compute none. Returns the bytes
        [start, stop) of those that were not computed yet, by operation.

        Raises: the error that ended an operation, or the session.
        """
        while open_ := [work for work in works if not _all_due(work)]:
            self._lanes.pump()
            self._wait(partial(_all_are_due, tuple(open_)), open_)
        with self._table.lock:
            found = [sorted(work.due) if work.due else [] for work in works]
        for work in works:
            if work.settled:
                work.wait()
        return found

    def _wait(self, done: Callable[[], bool], open_: Collection[Work[Any]]) -> None:
        """Until `done()`, or an operation in `open_` has taken too long, and fails."""
        until = min([work.expires for work in open_], default=0.0)
        if open_ and not self._lanes.wait_until(done, until):
            self._table.expire(time.monotonic())

    def _compute(self, work: Work[Any], compute: Compute, error: str) -> None:
        with self._table.lock:
            taken: tuple[int, Due] | None = work.due.take() if work.due else None
        if taken is not None:  # else another thread computes it
            engine, due = taken
            try:
                if not error:
                    compute(due.start, due.start + due.size)
            except BaseException as exc:  # Ctrl-C too: the peers wait for the result
                with suppress(DlcpError):  # as in `run`
                    self._answer(work, engine, due, _text_of(exc))
                raise
            self._answer(work, engine, due, error)

    def _answer(self, work: Work[Any], engine: int, due: Due, error: str) -> None:
        answer = encode(Computed(work.number, due.step, error))
        self._lanes.send(answer, work.expires, (engine,))


def _text_of(error: BaseException) -> str:
    return harmless(f"{type(error).__name__}: {error}")[:MAX_TEXT]


def _is_open(work: Work[Any]) -> bool:
    """Whether a step of it is due, or may become so."""
    return not work.settled and not (work.due is not None and work.due.all_taken)


def _any_moves(works: tuple[Work[Any], ...]) -> bool:
    """Whether one of them has a step to compute, or will have none."""
    return any([work.due or not _is_open(work) for work in works])


def _all_due(work: Work[Any]) -> bool:
    return work.settled or (work.due is not None and work.due.all_due)


def _all_are_due(works: tuple[Work[Any], ...]) -> bool:
    return all([_all_due(work) for work in works])
