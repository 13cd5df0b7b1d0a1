"""Serves one worker of a shard, on its own thread, from its call to its end."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from dlcp_client.numpy.arrays import Array
from dlcp_client.ps.calls import SERVER, WORKER, WorkerCall
from dlcp_client.ps.host_daemon import HostDaemon
from dlcp_client.ps.join_request import JoinRequest, PushAgreement, exactly, policy_of
from dlcp_client.ps.layout import COLUMNS, ShardLayout, ShardTensor
from dlcp_client.ps.protocol import (
    REPLY,
    REQUEST,
    RequestFlags,
    ShardReply,
    WorkerRequest,
    control,
    move_lossy,
    move_parameters,
    names_of_pull,
    names_of_push,
    request_words,
    wait_all,
)
from dlcp_client.server.core import Contribution
from dlcp_client.server.shard import Shard
from dlcp_client.session import Session
from dlcpd.contract.errors import DlcpError, ServerLost
from dlcpd.contract.policy import LossPolicy, exact
from dlcpd.contract.times import MAX_TIME

JOIN_TIMEOUT: Final = 30.0  # seconds for a worker to join after its answer
ROOM: Final = 16 << 20  # bytes of an arena in addition to the arrays: requests, replies, alignment
ARRAYS: Final = 4  # arrays of the shard's size: zeros, pushed and pulled values, a change

_log: Final = logging.getLogger("dlcpd.server")


def answer(call: WorkerCall, shard: Shard, host_daemon: HostDaemon) -> None:
    """Serve a worker from its call to its end; an invalid call is refused."""
    try:
        join_request = JoinRequest.of(call.join_request)
        last, agreement = shard.attach(join_request)
    except ServerLost as exc:  # the worker waits for the process that takes over
        _log.warning(
            "shard %d: the job's store does not answer, so calls get no reply: %s",
            shard.number,
            exc,
        )
        return
    except DlcpError as exc:
        _log.warning("shard %d refuses a worker: %s", shard.number, exc)
        call.respond({"code": exc.code, "text": str(exc)})
        return
    worker = join_request.worker
    try:
        call.respond({"last": last})
        with _session(call, host_daemon, agreement) as session:
            _log.info("shard %d: worker %d has joined", shard.number, worker)
            Serving(session, shard, agreement, join_request).run()
    except DlcpError as exc:
        shard.lost(worker, str(exc))
    except BaseException as exc:
        shard.lost(worker, repr(exc))
        raise
    else:
        shard.leave(worker)


def _session(call: WorkerCall, host_daemon: HostDaemon, agreement: PushAgreement) -> Session[Array]:
    room = ARRAYS * 4 * agreement.elements + 8 * COLUMNS * agreement.tensors + ROOM
    name = f"{agreement.job} and its server"
    return host_daemon.enter(call.member(SERVER), name, room, time.monotonic() + JOIN_TIMEOUT)


@dataclass(slots=True)
class _SessionArrays:
    """Arrays in the arena of a worker's session, kept for all its requests."""

    zeros: Array  # the shard's contribution to the sum of a push
    pushed: Array
    pulled: Array

    @classmethod
    def of(cls, session: Session[Array], elements: int) -> "_SessionArrays":
        return cls(session.zeros(elements), session.empty(elements), session.empty(elements))


class Serving:
    """The shard's end of a session with a worker."""

    def __init__(
        self,
        session: Session[Array],
        shard: Shard,
        agreement: PushAgreement,
        join_request: JoinRequest,
    ) -> None:
        self._session, self._group, self._shard = session, session.world, shard
        self._agreement, self._worker = agreement, join_request.worker
        self._layout = ShardLayout((ShardTensor(agreement.elements, 0),))  # for the pieces
        self._lossy: LossPolicy = policy_of(join_request.push)
        self._stale = policy_of(join_request.pull)
        self._exact = exactly(self._lossy)
        self._known: Array | None = None
        self._change: Array | None = None
        self._complete = 0  # number of complete pulls
        self._place = _SessionArrays.of(session, agreement.elements)
        self._request = session.empty(request_words(agreement, len(self._layout.pieces)), np.int64)

    def run(self) -> None:
        """Answer requests until the worker leaves. Raises: the error that ended the session."""
        idle = exact(traffic_class="front", deadline=MAX_TIME / 2)
        self._learn_exempt()
        while True:
            self._group.receive(self._request, WORKER, REQUEST, policy=idle).wait()
            request = WorkerRequest.of(self._request, self._agreement)
            if RequestFlags.LEAVE in request.ask:
                return
            reply = self._answer(request)
            words = reply.words()
            self._group.send(words, WORKER, REPLY, policy=control(self._exact)).wait()
            if reply.error is None or request.ask.ahead:
                self._bring(request.ask)

    def _bring(self, ask: RequestFlags) -> None:
        """Send the pulled parameters. `_known`: the worker's, once waived parts have arrived."""
        pulled = self._place.pulled
        if RequestFlags.STALE in ask and self._known is not None:
            if self._change is None:
                self._change = self._session.empty(self._agreement.elements)
            np.subtract(pulled, self._known, out=self._change)
            names = names_of_pull(self._layout, self._complete)
            wait_all(
                move_lossy(
                    self._group, self._layout, WORKER, self._change, None, self._stale, names
                )
            )
        elif RequestFlags.PULL in ask:
            self._move(pulled, SERVER)
            self._complete += 1
        else:
            return
        if not self._stale.is_plain:
            self._known = pulled.copy()

    def _learn_exempt(self) -> None:
        """Receive the worker's layout: both ends of a bounded push need the exempt ranges."""
        rows = self._session.empty((self._agreement.tensors, COLUMNS), np.int64)
        self._group.broadcast(rows, WORKER, policy=control(self._exact)).wait()
        self._layout = ShardLayout.of(
            rows, size=self._agreement.elements, groups=self._agreement.groups
        )

    def _answer(self, request: WorkerRequest) -> ShardReply:
        """Execute a request. Its error is in the reply; an error that ended the session or the
        shard is raised."""
        until, alive = time.monotonic() + self._exact.deadline, self._alive
        self._take_in(request)
        changed = True
        try:
            if RequestFlags.INITIALISE in request.ask:
                self._shard.initialise(self._layout.rows(), self._place.pulled)
            if RequestFlags.PUSH in request.ask:
                changed = self._push(request, until, alive)
            if RequestFlags.WAIT in request.ask:
                self._shard.wait_ready(time.monotonic() + request.patience, alive)
            version = self._shard.version
            if RequestFlags.PULL in request.ask:
                version = self._shard.pull(self._worker, self._place.pulled, until, alive)
        except _SessionEnded as exc:
            raise exc.why from None
        except DlcpError as exc:
            return ShardReply(self._shard.version, changed, exc)
        return ShardReply(version, changed, lost=self._shard.lost_workers)

    def _take_in(self, request: WorkerRequest) -> None:
        """Receive the data of a request. Raises: the error that ended the session."""
        place = self._place
        if RequestFlags.INITIALISE in request.ask:
            self._move(place.pulled, WORKER)
        if RequestFlags.FINITE in request.ask:
            policy = self._lossy if RequestFlags.LOSSY in request.ask else self._exact
            names = names_of_push(request.generations)
            wait_all(
                move_lossy(
                    self._group, self._layout, SERVER, place.zeros, place.pushed, policy, names
                )
            )

    def _push(self, request: WorkerRequest, until: float, alive: Callable[[], None]) -> bool:
        gradient = self._place.pushed if RequestFlags.FINITE in request.ask else None
        contribution = Contribution(request.settings, gradient)
        return self._shard.push(self._worker, request.number, contribution, until, alive)

    def _move(self, array: Array, root: int) -> None:
        wait_all(move_parameters(self._group, self._layout, array, root, self._exact))

    def _alive(self) -> None:
        """Raises: _SessionEnded if the session has ended."""
        if (error := self._session.failure()) is not None:
            raise _SessionEnded(error)


class _SessionEnded(Exception):
    """The session has ended: no reply can be sent."""

    def __init__(self, why: DlcpError) -> None:
        super().__init__(str(why))
        self.why = why
