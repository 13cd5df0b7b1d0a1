"""Computes the steps that engines leave to this client, on the thread that calls `run`."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from dlcp_client.operations.lanes import Lanes
from dlcp_client.operations.open_operations import Operations
from dlcp_client.operations.work import Work
from dlcpd.contract.frames import encode
from dlcpd.contract.messages import Computed, Due

# Bytes [start, stop) of the result, from the same bytes of the sums
Compute = Callable[[int, int], None]


class Computations:
    """Takes due steps from the table, and answers over the lanes."""

    def __init__(self, lanes: Lanes, table: Operations) -> None:
        self._lanes: Final = lanes
        self._table: Final = table

    def run(self, pending: Mapping[Work[Any], Compute]) -> None:
        """Compute the steps of these operations as they become due, until each has an outcome; of
        several due steps, the first operation's.

        If a computation raises, its operation fails at the deadline, here and on the peers.
        Raises: that exception; the error that ended the session.
        """
        lanes, open_ = self._lanes, dict(pending)
        while open_:
            lanes.pump()
            open_ = {work: compute for work, compute in open_.items() if not work.settled}
            ready = next((work for work in open_ if work.due), None)
            if ready is not None:
                self._compute(ready, open_[ready])
                continue
            until = min([work.expires for work in open_], default=0.0)
            if open_ and not lanes.wait_until(partial(_any_moves, tuple(open_)), until):
                self._table.expire(time.monotonic())

    def _compute(self, work: Work[Any], compute: Compute) -> None:
        with self._table.lock:
            taken: tuple[int, Due] | None = work.due.take() if work.due else None
        if taken is not None:  # else another thread computes it
            engine, due = taken
            compute(due.start, due.start + due.size)
            answer = encode(Computed(work.number, due.step))
            self._lanes.send(answer, work.expires, (engine,))


def _any_moves(works: tuple[Work[Any], ...]) -> bool:
    """Whether one of them has ended, or has a step to compute."""
    return any([work.settled or work.due for work in works])
