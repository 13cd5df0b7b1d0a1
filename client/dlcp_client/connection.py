"""The connection of a session to its engines: its parts from the first descriptor to the end."""

import logging
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic

from dlcp_client.arena.blocks import A, Library
from dlcp_client.arena.memory import SharedArena
from dlcp_client.arena.staging import Staging
from dlcp_client.environment import Environment
from dlcp_client.ipc.embedded import Embedded
from dlcp_client.ipc.handshake import ControlConnection
from dlcp_client.job.secret import JobSecret
from dlcp_client.job.session_origin import SessionOrigin
from dlcp_client.job.store import Store
from dlcp_client.operations.completion import Completion
from dlcp_client.operations.computations import Computations
from dlcp_client.operations.engines import Engines
from dlcp_client.operations.lanes import Lanes
from dlcp_client.operations.open_operations import Operations
from dlcp_client.operations.outcomes import Outcomes
from dlcp_client.operations.patience import Pace
from dlcp_client.operations.places import Places
from dlcp_client.operations.submission import Submission
from dlcp_client.operations.work import LATE
from dlcpd.contract.errors import DlcpError, ReplicaDivergence, SessionClosed
from dlcpd.contract.frames import encode
from dlcpd.contract.messages import Leave

# seconds; peers end with this rank, except for their last retransmissions
COMPARE_TIMEOUT: Final = 1.0
DRAIN_TIMEOUT: Final = 5.0  # seconds for peers to fetch data that close() would remove

log = logging.getLogger("dlcp_client")


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
    origin: SessionOrigin | None = None  # data for regrouping; None: it is not possible
    library: Library[Any] = field(kw_only=True)  # of the session's arrays
    hosts: int = field(default=1, kw_only=True)  # that the ranks' daemons are on, equal on all


class Connection(Generic[A]):
    """Owns the lanes, the arena, the staging thread and the table of operations of a session.

    Groups submit through `submission`, and works wait through `outcomes`.
    """

    def __init__(self, joined: JoinedJob) -> None:
        self.library: Final[Library[A]] = joined.library
        self.control: Final = joined.control
        self.daemon = joined.daemon  # private daemon, which ends with the session
        self._alone = joined.world_size == 1
        self._completion = Completion()
        environment = Environment.read()
        self.table = Operations(self._completion.ended_locked, Pace(environment.warn_after))
        lanes = [socket.socket(fileno=lane) for lane in joined.lanes]
        try:
            self.arena = SharedArena(joined.arena, joined.arena_bytes)
        except BaseException:
            for lane in lanes:
                lane.close()
            raise
        self.lanes = Lanes(lanes, joined.control, self.table)
        self.computations = Computations(self.lanes, self.table)
        self.engines = Engines(len(lanes))
        self.staging = Staging(self.arena, environment.pinned)
        self.places = Places(
            self.arena, self.staging, self.table, self.lanes, joined.library.ranges
        )
        self.outcomes = Outcomes(
            self.table,
            self.lanes,
            self._completion,
            self.staging,
            library=joined.library,
            number=joined.control.session,
        )
        self.submission: Submission[A] = Submission(
            self.table,
            self.lanes,
            self.engines,
            self.places,
            self.staging,
            progress=self.outcomes,
        )

    def close(self) -> ReplicaDivergence | None:
        """Leave the job, after peers have fetched the data of completed operations.

        Operations without an outcome fail with SessionClosed. Returns an error if peers have other
        results of the last operations.
        """
        table = self.table
        over = time.monotonic() + DRAIN_TIMEOUT
        self.lanes.wait_until(lambda: table.error is not None or table.drained, over)
        diverged = self._compare_last_results()
        self.lanes.close()
        self._completion.close(table)
        table.let_go()
        self.staging.close()
        self.arena.close()
        if self.daemon:
            self.daemon.close()
        return diverged

    def abandon(self) -> None:
        """In a forked child: drop everything that belongs to the parent."""
        self.submission.abandon()
        self.table.abandon(
            SessionClosed(
                "this session belongs to the parent process: connect again in this process"
            )
        )
        self._completion.abandon()
        self.staging.abandon()
        self.lanes.abandon()
        self.arena.abandon()
        if self.daemon:
            self.daemon.abandon()

    def _compare_last_results(self) -> ReplicaDivergence | None:
        """Compare the last results. Earlier ones are compared as the next operation begins."""
        table, engines = self.table, range(self.engines.count)
        if self._alone or table.over:
            return None
        until = time.monotonic() + COMPARE_TIMEOUT + LATE
        try:
            self.lanes.send(encode(Leave(COMPARE_TIMEOUT)), until, engines)
            self.lanes.wait_until(lambda: table.over or len(table.left) == len(engines), until)
        except DlcpError:
            return None  # the engine is gone; closing is no error
        if unconfirmed := sum(table.left.values()):
            log.warning(
                "replica check: %d results of this session were not compared, because peers left",
                unconfirmed,
            )
        return table.error if isinstance(table.error, ReplicaDivergence) else None
