"""A worker's end of its session with one shard. When the shard's process ends, it finds the next.

The state of a failed push decides what is pushed again, so that it counts once, and residuals of a
bounded push are neither lost nor counted twice:

* The next process knows the push: it counted. Nothing is pushed again.
* The engine has finished a piece: its contribution, gradient plus reapplied residual, is still in
  `gradient`. It is pushed again under a new name, which has no residual.
* It has not: the engine has restored the residual, and the plain gradient is pushed again.
"""

import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from dlcp_client.group import Group
from dlcp_client.numpy.arrays import Array
from dlcp_client.operations.work import Work
from dlcp_client.ps.calls import SERVER, WORKER
from dlcp_client.ps.directory import Directory
from dlcp_client.ps.host_daemon import HostDaemon
from dlcp_client.ps.join_request import JoinRequest, exactly, policy_of
from dlcp_client.ps.layout import COLUMNS, ShardLayout
from dlcp_client.ps.protocol import (
    ANSWER,
    REPLY,
    REQUEST,
    TEXT,
    RequestFlags,
    ShardReply,
    WorkerRequest,
    control,
    move_lossy,
    move_parameters,
    names_of_pull,
    names_of_push,
    wait_all,
)
from dlcp_client.ps.specs import Settings
from dlcp_client.session import Session
from dlcpd.contract.errors import BadSnapshot, DlcpError, PeerLost, ServerLost, SessionClosed

ROOM: Final = 16 << 20  # bytes of an arena in addition to the arrays: requests, replies, alignment
ARRAYS: Final = 4  # arrays of the shard's size: pushed and pulled values; zeros and a change

_log: Final = logging.getLogger("dlcp_client")


@dataclass(frozen=True, slots=True)
class ShardExchange:
    """One request to a shard. `gradients`: of its tensors, not to be modified until the request
    ends; None: a parameter without gradient."""

    ask: RequestFlags
    gradients: Sequence[Array | None] = ()
    settings: tuple[Settings, ...] = ()
    patience: float = 0.0  # seconds, of WAIT
    changed: bool = True  # result of an acknowledged push


class ShardLink:
    """A session with one shard. `shards`: of the server; `takeover`: seconds for another process to
    take over from one that ended."""

    def __init__(  # noqa: PLR0913  # all but the first five by keyword
        self,
        directory: Directory,
        host_daemon: HostDaemon,
        shard: int,
        layout: ShardLayout,
        join_request: JoinRequest,
        *,
        shards: int,
        takeover: float,
    ) -> None:
        self.shard, self.layout, self._shards = shard, layout, shards
        self._directory, self._host_daemon, self._join_request = (
            directory,
            host_daemon,
            join_request,
        )
        self._takeover = takeover
        self._lossy = policy_of(join_request.push)
        self._stale = policy_of(join_request.pull)
        self._exact = exactly(self._lossy)
        self._complete = 0  # number of complete pulls of this session
        self._change: tuple[Array, Array] | None = None  # zeros, and the received change
        self._session: Session[Array] | None = None
        self._gradient: Array  # both in the arena of the session
        self._parameters: Array
        self._acknowledged = 0  # number of the last acknowledged push
        self._generations = [0] * len(layout.pieces)
        self._before: list[Work[Any]] = []  # the request, and transfers before a push
        self._works: list[Work[Any]] = []  # of the push in progress, by piece
        self._answer: Work[Any] | None = None
        self._pulled: list[Work[Any]] = []  # parameters that come with any answer
        self._exchange = ShardExchange(RequestFlags(0))
        self._failure: DlcpError | None = None

    def open(self, deadline: float) -> None:
        """Find the shard and take part. Raises: the error of a refusal, ServerLost."""
        self._acknowledged = self._attach(deadline)

    @property
    def gradient(self) -> Array:
        """The buffer that is pushed; `pack` fills it."""
        return self._gradient

    @property
    def parameters(self) -> Array:
        """The pulled parameters; also those that INITIALISE sends."""
        return self._parameters

    def pack(self, gradients: Sequence[Array | None]) -> None:
        """Copy the gradients of the shard's tensors to the push buffer."""
        for (start, stop), gradient in zip(self.layout.ranges, gradients, strict=True):
            self._gradient[start:stop] = 0 if gradient is None else gradient.reshape(-1)

    def start(self, exchange: ShardExchange) -> None:
        """Submit a request with its data; `finish` waits for it."""
        self._exchange, self._failure = exchange, None
        try:
            self._submit()
        except (PeerLost, SessionClosed) as exc:
            self._failure = exc

    def finish(self) -> ShardReply:
        """Wait for the end. If the shard's process ends, continue with the next one.

        Raises: the error of a refusal; ServerLost if no process took over; any other error that
        ended the session.
        """
        while True:
            try:
                return self._finish()
            except (PeerLost, ServerLost, SessionClosed) as exc:
                self._recover(exc)
                self.start(self._exchange)

    def leave(self) -> None:
        """Notify the shard, unless it is gone, and close the session."""
        session, self._session = self._session, None
        if session is None:
            return
        try:
            if session.failure() is None:
                words = WorkerRequest(RequestFlags.LEAVE).words(
                    self._join_request.agreement, len(self.layout.pieces)
                )
                session.world.send(words, SERVER, REQUEST, policy=control(self._exact)).wait()
        except DlcpError as exc:
            _log.warning("shard %d was not notified that this worker leaves: %s", self.shard, exc)
        session.close()

    # --- requests ---------------------------------------------------------------------------

    def _submit(self) -> None:
        """Raises: the error that ended the session."""
        if not self._complete:  # no change can be pulled before complete parameters
            self._exchange = replace(self._exchange, ask=self._exchange.ask & ~RequestFlags.STALE)
        exchange, group = self._exchange, self._open().world
        self._works = []
        request = WorkerRequest(
            exchange.ask,
            self._acknowledged + 1,
            exchange.settings,
            tuple(self._generations),
            exchange.patience,
        )
        words = request.words(self._join_request.agreement, len(self.layout.pieces))
        before = [group.send(words, SERVER, REQUEST, policy=control(self._exact))]
        if RequestFlags.INITIALISE in exchange.ask:
            before += move_parameters(group, self.layout, self._parameters, WORKER, self._exact)
        if RequestFlags.FINITE in exchange.ask:
            policy = self._lossy if RequestFlags.LOSSY in exchange.ask else self._exact
            names = names_of_push(self._generations)
            self._works = move_lossy(
                group, self.layout, SERVER, self._gradient, None, policy, names
            )
        self._before = before
        answer = np.empty(ANSWER + TEXT // 8, np.int64)
        self._answer = group.receive(answer, SERVER, REPLY, policy=control(self._exact))
        self._pulled = self._pull(group) if exchange.ask.ahead else []

    def _pull(self, group: Group[Any]) -> list[Work[Any]]:
        return move_parameters(group, self.layout, self._parameters, SERVER, self._exact)

    def _finish(self) -> ShardReply:
        if self._failure is not None:
            raise self._failure
        assert self._answer is not None  # noqa: S101  # `start` came first
        wait_all([*self._before, *self._works])
        reply = ShardReply.of(self._answer.result())
        if reply.error is not None:
            with suppress(DlcpError):  # the reply has the error; the parameters are not needed
                wait_all(self._pulled)
            raise reply.error
        if RequestFlags.PUSH in self._exchange.ask:
            self._acknowledged += 1
            self._push_is_over(reply.changed)
        if RequestFlags.STALE in self._exchange.ask:
            self._pull_change(self._open())
        elif RequestFlags.PULL in self._exchange.ask:
            wait_all(self._pulled or self._pull(self._open().world))
            self._complete += 1
        return ShardReply(reply.version, self._exchange.changed, lost=reply.lost)

    def _pull_change(self, session: Session[Array]) -> None:
        """Add the change since the last pull. A waived part keeps its old value, and comes with a
        later change."""
        if self._change is None:
            self._change = session.zeros(self.layout.size), session.empty(self.layout.size)
        zeros, change = self._change
        names = names_of_pull(self.layout, self._complete)
        wait_all(move_lossy(session.world, self.layout, WORKER, zeros, change, self._stale, names))
        self._parameters += change

    def _push_is_over(self, changed: bool) -> None:
        """Remove the push from the request, in case it is repeated."""
        rest = self._exchange.ask & ~(RequestFlags.PUSH | RequestFlags.FINITE | RequestFlags.LOSSY)
        self._exchange = ShardExchange(rest, changed=changed)

    # --- another process --------------------------------------------------------------------

    def _recover(self, why: DlcpError) -> None:
        """Raises: ServerLost; BadSnapshot if confirmed pushes are lost; the error of a refusal."""
        _log.warning(
            (
                "the session with shard %d of server %s is lost (%s); waiting up to %g s for its "
                "process, or for a standby that takes over"
            ),
            self.shard,
            self._directory.name,
            why,
            self._takeover,
        )
        finished = [work.stats is not None for work in self._works]
        contribution = self._gradient
        last = self._attach(time.monotonic() + self._takeover)
        if last < self._acknowledged:
            raise BadSnapshot(
                f"shard {self.shard} of server {self._directory.name!r} has lost "
                f"{self._acknowledged - last} confirmed pushes of this worker: its last push "
                f"is number {last}, and {self._acknowledged} were confirmed. Its log is "
                "damaged, or an old copy: restart the job from its last checkpoint"
            )
        exchange = self._exchange
        if RequestFlags.PUSH not in exchange.ask:
            return
        if last > self._acknowledged:  # the push counted
            self._acknowledged = last
            self._push_is_over(changed=True)
            # If the engine did not learn that, it would reapply values that have counted.
            self._renew([not done for done in finished])
            return
        self.pack(exchange.gradients)
        for (start, stop), done in zip(self.layout.pieces, finished, strict=False):
            if done:
                self._gradient[start:stop] = contribution[start:stop]
        self._renew(finished)

    def _renew(self, pieces: Sequence[bool]) -> None:
        """Give these pieces new names, which drops their residuals."""
        for index, renewed in enumerate(pieces):
            self._generations[index] += renewed

    def _attach(self, deadline: float) -> int:
        """Open a session with the shard's current process. Returns the number of the last
        acknowledged push.

        Raises: ServerLost; the error of a refusal.
        """
        while True:
            join_request = self._join_request.values()
            call, last = self._directory.call(self.shard, self._shards, join_request, deadline)
            try:
                self._enter(call.member(WORKER), deadline)
            except (PeerLost, SessionClosed) as exc:
                _log.warning("shard %d was lost while this worker joined: %s", self.shard, exc)
                if time.monotonic() >= deadline:
                    raise
            else:
                return last

    def _enter(self, member: Any, deadline: float) -> None:
        previous, agreement = self._session, self._join_request.agreement
        room = ARRAYS * 4 * self.layout.size + 8 * COLUMNS * agreement.tensors + ROOM
        name = f"{agreement.job} and its server"
        session = self._host_daemon.enter(member, name, room, deadline, previous)
        if previous is not None:
            previous.close()
        self._session, self._complete, self._change = session, 0, None
        self._gradient = session.zeros(self.layout.size)
        parameters = session.zeros(self.layout.size)
        if previous is not None:  # INITIALISE may have to be repeated
            parameters[:] = self._parameters
        self._parameters = parameters
        rows = self.layout.rows()
        session.world.broadcast(rows, WORKER, policy=control(self._exact)).wait()

    def _open(self) -> Session[Array]:
        if self._session is None:
            raise SessionClosed("this client is closed: its worker has left the server")
        return self._session
