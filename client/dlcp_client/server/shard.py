"""A shard shared by threads, one for each worker, which wait here for each other."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dlcp_client.ps.join_request import JoinRequest, PushAgreement
from dlcp_client.server.core import Array, Contribution, ShardCore
from dlcp_client.server.journal_entry import NotDurable
from dlcpd.contract.errors import DeadlineExceeded, DlcpError, ServerLost

LOOK: Final = 0.1  # seconds between two checks whether a waiting worker is still connected
GRACE: Final = 3.0  # seconds for a lost worker to return; it needs about one

_log: Final = logging.getLogger("dlcpd.server")


class Shard:
    """A ShardCore behind a lock. An error of its journal ends it: every waiting thread gets the
    error."""

    def __init__(self, core: ShardCore, number: int) -> None:
        self._core, self.number = core, number
        self._changed = threading.Condition()
        self._over: DlcpError | None = None
        self._came, self._lost = set[int](), set[int]()

    @property
    def over(self) -> DlcpError | None:
        """The error that ended it, or None."""
        return self._over

    @property
    def version(self) -> int:
        """Version of the parameters."""
        return self._core.progress.version

    @property
    def workers(self) -> int:
        """Number of connected workers."""
        return len(self._core.progress.here)

    @property
    def expected(self) -> int:
        """Number of workers whose connection broke, and that may return."""
        return len(self._core.progress.expected)

    @property
    def lost_workers(self) -> frozenset[int]:
        """Workers that have not returned in time after their connection broke."""
        with self._changed:
            return frozenset(self._lost)

    @property
    def came(self) -> int:
        """Number of workers that have joined, in this process."""
        return len(self._came)

    def attach(self, join_request: JoinRequest) -> tuple[int, PushAgreement]:
        """See ShardCore.attach. Also returns the terms of the shard."""
        with self._changed:
            self._check()
            progress, until = self._core.progress, time.monotonic() + GRACE
            while join_request.worker in progress.here and time.monotonic() < until:
                self._changed.wait(LOOK)  # the end of its former connection is noticed soon
            with self._durably():
                last = self._core.attach(join_request)
            self._came.add(join_request.worker)
            self._lost.discard(join_request.worker)
            self._changed.notify_all()
            assert self._core.agreement is not None  # noqa: S101  # attach has set them
            return last, self._core.agreement

    def leave(self, rank: int) -> None:
        """A worker has left."""
        with self._changed:
            self._core.leave(rank)
            self._advance()

    def lost(self, rank: int, why: str) -> None:
        """A worker's connection broke."""
        with self._changed:
            _log.warning("shard %d lost worker %d: %s", self.number, rank, why)
            self._core.lost(rank, time.monotonic() + GRACE)
            self._advance()

    def initialise(self, rows: NDArray[np.int64], parameters: Array) -> None:
        """See ShardCore.initialise."""
        with self._changed:
            self._check()
            with self._durably():
                self._core.initialise(rows, parameters)
            self._changed.notify_all()

    def push(
        self,
        rank: int,
        number: int,
        contribution: Contribution,
        until: float,
        alive: Callable[[], None],
    ) -> bool:
        """Push, and wait for the acknowledgement. Returns whether its version changed the
        parameters.

        Raises: the errors of ShardCore.push; DeadlineExceeded; the errors of `alive`, which is
        called every LOOK seconds.
        """
        with self._changed:
            self._check()
            core = self._core
            core.push(rank, number, contribution)
            self._advance()
            acknowledged = core.progress.acknowledged
            self._wait(lambda: acknowledged.get(rank, 0) >= number, until, alive)
            return core.changed(rank)

    def wait_ready(self, until: float, alive: Callable[[], None]) -> None:
        """Wait for parameters and all workers of the launch. Raises: as `push`."""
        core = self._core
        with self._changed:
            self._wait(lambda: core.parameters is not None and core.progress.started, until, alive)

    def pull(self, rank: int, into: Array, until: float, alive: Callable[[], None]) -> int:
        """Copy the parameters once the staleness allows it. Returns their version. Raises: as
        `push`; NotInitialised."""
        core = self._core
        with self._changed:
            self._wait(lambda: core.progress.may_go_on(rank), until, alive)
            into[:] = core.read()
            core.progress.pulled(rank)
            return core.progress.version

    def tick(self) -> None:
        """Called regularly: drops workers that have been lost for too long."""
        with self._changed:
            if self._core.progress.expected:
                self._advance()

    def end(self, why: DlcpError) -> None:
        """End the shard: every waiting thread gets `why`."""
        with self._changed:
            self._over = self._over or why
            self._changed.notify_all()

    def _advance(self) -> None:
        """Make due versions. On a failure, waiting threads get the error."""
        with suppress(ServerLost), self._durably():
            for rank in self._core.advance(time.monotonic()):
                _log.warning("shard %d continues without worker %d", self.number, rank)
                self._lost.add(rank)
        self._changed.notify_all()

    @contextmanager
    def _durably(self) -> Iterator[None]:
        """Raises: ServerLost if the journal failed, which ends the shard."""
        try:
            yield
        except NotDurable as exc:
            self.end(exc)
            self._check()

    def _wait(self, done: Callable[[], bool], until: float, alive: Callable[[], None]) -> None:
        while not done():
            self._check()
            if time.monotonic() >= until:
                raise DeadlineExceeded(self._core.waiting())
            self._changed.wait(LOOK)
            alive()
        self._check()

    def _check(self) -> None:
        if self._over is not None:
            raise ServerLost(f"shard {self.number} has ended: {self._over}")
