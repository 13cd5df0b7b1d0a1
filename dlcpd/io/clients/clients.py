"""All clients of an engine: their messages, their outcomes, and the end of each.

Any failure of one client or its session - it does not read, it breaks the rules, or a bug shows
while it is served - ends that session and no other.
"""

import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from dlcpd.contract.errors import (
    BadMessage,
    DlcpError,
    OperationAborted,
    PeerLost,
    SessionClosed,
)
from dlcpd.contract.messages import (
    Completed,
    Due,
    Failed,
    Left,
    Message,
    Released,
    Submit,
)
from dlcpd.core.endpoint import Endpoint
from dlcpd.core.session.events import (
    Concluded,
    Event,
    MessageWithdrawn,
    OperationDone,
    OperationDue,
    OperationFailed,
    OperationReleased,
    SessionBroken,
)
from dlcpd.core.session.session import Session
from dlcpd.core.timers import Timer
from dlcpd.core.trace import NO_OPERATION
from dlcpd.io import control_events
from dlcpd.io.clients.client import Client
from dlcpd.io.clients.delivery import Delivery
from dlcpd.io.clients.offers import NetworkOffers
from dlcpd.io.clients.outcomes import as_lost, completed, failed_message, for_peers
from dlcpd.io.clients.probing import ProbeRounds
from dlcpd.io.control_link import ControlLink
from dlcpd.io.poll import WRITE, Handler, Poll

FRAMES_PER_WAKE: Final = 64  # submissions per lane and wake-up, before other lanes get their turn
LANE_TURN: Final = 2e-3  # seconds that they may take: a frame of the largest size takes as long
LANE_DELAY: Final = (
    2e-3  # seconds a Released may wait for company; a client short of memory waits too
)
MAX_TRACE: Final = 4096  # characters of a bug's trace that control logs


class Clients:
    """`trouble`: the known network problems of a session, for error texts; `forget`: called before
    a session closes, so that the network forgets it."""

    def __init__(
        self,
        endpoint: Endpoint,
        control: ControlLink,
        poll: Poll,
        *,
        trouble: Callable[[int], str],
        forget: Callable[[Session], None],
    ) -> None:
        self._endpoint, self._control, self._poll = endpoint, control, poll
        self._trouble, self._forget = trouble, forget
        self._clients: dict[int, Client] = {}  # by session
        self._busy: deque[Client] = deque()  # clients with a pending operation; the next one first
        self._ending: dict[int, DlcpError] = {}  # sessions that close after this wake-up
        self.draining = False  # no new operation is begun
        self.delivery = Delivery(endpoint, control)
        self.offers = NetworkOffers(endpoint, control, self._clients, self._resume)
        self.probing = ProbeRounds(control, self._clients)

    def __contains__(self, session: int) -> bool:
        return session in self._clients

    def __iter__(self) -> Iterator[Client]:
        return iter(self._clients.values())

    def add(self, client: Client, inherits: int = 0) -> None:
        """Serve a client from now on. It takes over the residuals of session `inherits`."""
        if former := self._clients.get(inherits):
            client.inherit(former)
        self._clients[client.session.number] = client
        self._poll.watch(client.lane, self._lane_handler(client))

    # --- from clients ------------------------------------------------------------------

    def _lane_handler(self, client: Client) -> Handler:
        number = client.session.number

        def handle(mask: int, now: float) -> None:
            if mask & WRITE:
                client.lane.flush()
                self._poll.watch_writing(client.lane, bool(client.lane.backlog))
                if client.lane.broken:
                    self.end(number, SessionClosed(client.lane.broken))
            for _ in range(FRAMES_PER_WAKE):
                if number in self._ending or client.left or client.pending or client.held:
                    return
                if not self._read(client, now):
                    return
                if time.monotonic() - now > LANE_TURN:
                    return

        return handle

    def _read(self, client: Client, now: float) -> bool:
        """Handle one frame; False when there is none."""
        number = client.session.number
        try:
            message = client.lane.receive()
            if message is None:
                return False
            self._on_message(client, message, now)
        except BadMessage as exc:
            self._endpoint.counters["bad_message"] += 1
            self.end(number, exc)  # parsing the largest takes 1 ms: no second try
        except EOFError:
            self.leave(number, SessionClosed("the client ended"), now)
        except Exception as exc:  # a bug: this session ends, the others go on
            self.fault(number, exc)
        return True

    def _on_message(self, client: Client, message: Message, now: float) -> None:
        if isinstance(message, Submit) and self.draining:
            error: DlcpError | None = SessionClosed("the daemon is shutting down")
        else:
            error = client.handle(message, now)
        if error is not None and isinstance(message, Submit):
            self._refused(client, message.operation, error)
        if client.pending is not None:
            self._busy.append(client)
        elif client.held is not None:
            self._poll.forget(client.lane)  # it stays readable
            self.offers.hold(client)

    def _resume(self, client: Client, now: float) -> None:
        """Begin or fail the operation that was held, and read the lane again."""
        number, ticket = client.session.number, client.submitted
        if client.held is None or number in self._ending:
            return
        try:
            error = client.release(now)
            self._poll.watch(client.lane, self._lane_handler(client))
            self._poll.watch_writing(client.lane, bool(client.lane.backlog))
        except Exception as exc:  # a bug, or no kernel memory: this session ends, the others go on
            self.fault(number, exc)
            return
        if error is not None:
            self._refused(client, ticket, error)
        if client.pending is not None:
            self._busy.append(client)

    def _refused(self, client: Client, ticket: int, error: DlcpError) -> None:
        """Answer a submission that begins no operation: it counts as one that failed."""
        client.session.outcomes.totals.failed[error.code] += 1
        self._send(client, failed_message(ticket, error.code, str(error), error.peer))

    @property
    def busy(self) -> bool:
        """Whether `work` has something to do."""
        return bool(self._busy)

    def work(self) -> None:
        """Go on with a large operation that was submitted; clients take turns of LANE_TURN."""
        client = self._busy.popleft()
        number, until = client.session.number, time.monotonic() + LANE_TURN
        try:
            while client.pending is not None and (now := time.monotonic()) < until:
                error = client.go_on(now, 1)
                if error is not None:
                    self._refused(client, client.submitted, error)
        except Exception as exc:  # a bug: this session ends, the others go on
            self.fault(number, exc)
        if client.pending is not None and number not in self._ending:
            self._busy.append(client)

    # --- to clients ----------------------------------------------------------------------

    def tell(self, session: int, events: Sequence[Event]) -> None:
        """Report the events of a session to control, as far as they matter there, then to its
        client. Control comes first: peers then learn why operations failed, before they learn that
        a client left because of it."""
        client = self._clients.get(session)
        if client is None:
            return
        events = self._explained(session, events)
        self._tell_control(session, events)
        for event in events:
            self._tell(client, event)

    def _explained(self, session: int, events: Sequence[Event]) -> list[Event]:
        """Events with the known network problems in the texts of errors."""
        errors = OperationFailed, SessionBroken
        trouble = self._trouble(session) if any(isinstance(e, errors) for e in events) else ""
        if not trouble:
            return list(events)
        return [e._replace(text=e.text + trouble) if isinstance(e, errors) else e for e in events]

    def _tell_control(self, session: int, events: Sequence[Event]) -> None:
        """Failures go in common frames, since most operations fail together."""
        failed = [
            e for e in events if isinstance(e, OperationFailed | MessageWithdrawn) and e.ranks
        ]
        for first in range(0, len(failed), control_events.MAX_FAILURES):
            rows = [
                for_peers(event) for event in failed[first : first + control_events.MAX_FAILURES]
            ]
            self._control.emit(control_events.OperationsFailed(session, rows))
        for event in events:
            if isinstance(event, SessionBroken):
                count = self._clients[session].session.outcomes.totals.failed.total()
                self._control.emit(control_events.SessionFailed(*event[:4], count))

    def _tell(self, client: Client, event: Event) -> None:
        match event:
            case _ if getattr(event, "ticket", 0) < 0:  # of no operation of the client
                self.probing.on_event(event)
            case OperationDone(number, ticket):
                self._send(client, completed(event, client.lane.take_released()))
                if self._endpoint.trace.on:
                    self._endpoint.trace.note("returned", number, NO_OPERATION, ticket)
            case OperationDue():
                self._send(client, Due(*event[1:]))
            case OperationReleased(number, ticket):
                if not client.lane.released:  # not at once: waking the client costs more
                    at = time.monotonic() + LANE_DELAY
                    self._endpoint.timers.set((self, Timer.RELEASED, number), at)
                client.lane.released.append(ticket)
            case OperationFailed(_, ticket, code, text, peer=peer):
                # A rank that aborted because a peer is lost says so: the client sees a lost peer.
                relayed = code == OperationAborted.code and peer.rank >= 0
                self._send(
                    client, failed_message(ticket, PeerLost.code if relayed else code, text, peer)
                )
            case Concluded(_, unconfirmed):
                self._send(client, Left(unconfirmed))
            case SessionBroken(_, _, code, text, peer):
                self._send(client, failed_message(0, code, text, peer))

    def _send(self, client: Client, message: Completed | Due | Released | Failed | Left) -> None:
        if client.left:
            return
        if not client.lane.send(message):
            why = client.lane.broken or "the client does not read its lane"
            self.end(client.session.number, SessionClosed(why))
        elif client.lane.backlog:
            self._poll.watch_writing(client.lane, wanted=True)

    def handle_timer(self, timer: Timer, subject: int, now: float) -> None:
        """Tell the client which memory was released: it has waited long enough for another
        message."""
        client = self._clients.get(subject)
        if client is not None:
            for number in client.lane.take_released():
                self._send(client, Released(number))

    # --- ends of sessions ------------------------------------------------------------------

    def fault(self, number: int, bug: Exception) -> None:
        """End a session in whose service a bug showed; 0: report it, and end none."""
        self._endpoint.counters["internal"] += 1
        error = DlcpError(
            f"the engine failed while it served this session ({type(bug).__name__}: {bug}): a bug "
            f"in dlcpd, whose log has the details. Other sessions go on"
        )
        trace = "".join(traceback.format_exception(bug))[-MAX_TRACE:]
        self.end(number, error, trace)

    def leave(self, number: int, error: DlcpError, now: float) -> None:
        """The client of a session is gone: see `Delivery`. A session that is over is no error."""
        client = self._clients.get(number)
        if client is None or client.left or number in self._ending:
            return
        try:
            self._poll.forget(client.lane)
            self._busy = deque(each for each in self._busy if each is not client)
            failed = client.session.outcomes.totals.failed
            before, unexpected = failed.total(), client.unexpected_end
            client.leave(error)
            if (left := failed.total() - before) or unexpected:
                self._control.emit(control_events.LeftOpen(number, left))
            events = client.session.outcomes.take()
            self._tell_control(number, [as_lost(event, client.session) for event in events])
            self.delivery.begin(client.session, now)
        except Exception as exc:  # a bug: this session ends, the others go on
            self.fault(number, exc)

    def end(self, number: int, error: DlcpError, trace: str = "") -> None:
        """Close a session after this wake-up, and report the first reason to control."""
        if number not in self._ending:
            self._control.emit(control_events.SessionEnded(number, error.code, str(error), trace))
        self.close(number, error)

    def close(self, number: int, error: DlcpError) -> None:
        """Close a session after this wake-up: control knows. A session that is gone is no error."""
        self._ending.setdefault(number, error)

    def close_ended(self) -> None:
        """Fail open operations, tell the client if it still listens, and forget the session."""
        while self._ending:
            number, error = next(iter(self._ending.items()))
            try:
                self._close(number, error)
            finally:
                del self._ending[number]

    def _close(self, number: int, error: DlcpError) -> None:
        session, client = self._endpoint.sessions.get(number), self._clients.get(number)
        if session is not None and client is not None:
            self._fail(session, client, error)
        if session is not None:
            self._forget(session)
            self._endpoint.close_session(number)
        if client is not None:
            del self._clients[number]
            self._busy = deque(each for each in self._busy if each is not client)
            if former := self._clients.get(client.inherits):
                client.give_back(former)
            self.delivery.forget(number)
            self.probing.forget(number)
            if not client.left:
                self._poll.forget(client.lane)
            client.close()

    def _fail(self, session: Session, client: Client, error: DlcpError) -> None:
        try:
            session.end(error)
            events = self._explained(session.number, session.outcomes.take())
            self._tell_control(session.number, [as_lost(event, session) for event in events])
            for event in events:
                self._tell(client, event)
        except Exception:  # a bug has left the session inconsistent
            self._endpoint.counters["internal"] += 1
            self._send(client, Failed(0, error.code, str(error)))
