"""Carries out control's commands in an engine."""

import time
from collections.abc import Callable
from typing import Final

from dlcpd.contract.errors import OperationAborted, PeerLost, error_for, made
from dlcpd.core.endpoint import Endpoint
from dlcpd.core.session.session import Session
from dlcpd.io import commands, tracing
from dlcpd.io.clients.clients import Clients
from dlcpd.io.control_events import Alive
from dlcpd.io.control_link import ControlLink, Reporter
from dlcpd.io.poll import WRITE
from dlcpd.io.session_opener import SessionOpener

COMMAND_TURN: Final = 0.02  # seconds of commands at a time: each abort of a command may fail an
# operation, and peers suspect an engine that is silent for one second


class CommandHandler:
    """Reads commands from `control`, and passes each to the part of the engine that it concerns.
    `stop` is called with the time, of the monotonic clock, at which the engine ends; `find_routes`
    is the network's."""

    def __init__(  # noqa: PLR0913  # all but the first by keyword
        self,
        endpoint: Endpoint,
        *,
        control: ControlLink,
        clients: Clients,
        reporter: Reporter,
        opener: SessionOpener,
        stop: Callable[[float], None],
        find_routes: Callable[[Session], None],
    ) -> None:
        self._find_routes = find_routes
        self._endpoint, self._control, self._clients = endpoint, control, clients
        self._reporter, self._opener, self._stop = reporter, opener, stop

    def handle(self, mask: int, now: float) -> None:
        """The command socket can be read or, by `mask`, written. Raises: ControlGone."""
        if mask & WRITE:
            self._control.flush()
        while time.monotonic() - now < COMMAND_TURN:
            received = self._control.receive()
            if received is None:
                return
            command, descriptors = received
            if command is None:
                self._stop(now)  # control is gone, and the engine has no other purpose
                return
            if isinstance(command, commands.OpenSession):
                self._opener.open(command, descriptors)
            else:
                self._obey(command, now)

    def _obey(self, command: commands.Command, now: float) -> None:
        match command:
            case commands.ReportRequest(ledger):
                self._reporter.ask(ledger)
            case commands.AliveRequest():
                self._control.emit(Alive())
            case commands.TraceOperations(what):
                self._control.emit(tracing.obey(self._endpoint.trace, what))
            case commands.Stop(drain):
                self._stop(now + drain)
                self._clients.draining = True
            case commands.OfferNetwork() | commands.SettleNetwork():
                self._clients.offers.obey(command, now)
            case commands.FindRoutes(number):
                if session := self._endpoint.sessions.get(number):
                    self._find_routes(session)
            case commands.ProbeFlows():
                self._clients.probing.obey(command, now)
            case _:
                self._obey_for_session(command, now)

    def _obey_for_session(self, command: commands.Command, now: float) -> None:
        match command:
            case commands.LeaveSession(number, code, text):
                self._clients.leave(number, error_for(code, text), now)
            case commands.CloseSession(number, code, text):
                self._clients.close(number, error_for(code, text))
            case (
                commands.PeerGone(number)
                | commands.PeerLeft(number)
                | commands.PeerDoubted(number)
                | commands.AbortOperations(number)
            ):
                if session := self._endpoint.sessions.get(number):  # else it is gone: no error
                    try:
                        _pass_on(command, session, now)
                    except Exception as exc:  # a bug: the other sessions go on
                        self._clients.fault(number, exc)


def _pass_on(
    command: (
        commands.PeerGone | commands.PeerLeft | commands.PeerDoubted | commands.AbortOperations
    ),
    session: Session,
    now: float,
) -> None:
    """Pass reports on peers to the session that they are about."""
    if isinstance(command, commands.PeerGone):
        error = PeerLost(command.text, session.peer(command.rank))
        session.peer_gone(command.rank, error, now)
        return
    if isinstance(command, commands.PeerLeft):
        left = PeerLost(command.text, session.peer(command.rank))
        session.peer_left(command.rank, command.begun, left, now, last=command.last)
        return
    if isinstance(command, commands.PeerDoubted):
        session.detector.doubt(command.rank, command.sign, now)
        return
    for aborted in command.aborted:
        reason = made(OperationAborted, aborted.text, session.peer(aborted.lost))
        session.abort(aborted.rank, aborted.stream, aborted.operation, reason, now)
