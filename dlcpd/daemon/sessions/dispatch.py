"""Applies peers' messages and engines' events to sessions."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection

from dlcpd.contract.errors import (
    DlcpError,
    NotAuthorised,
    OperationAborted,
    PeerLost,
    RanksDisagree,
    ReplicaDivergence,
    error_for,
)
from dlcpd.daemon import log
from dlcpd.daemon.engines import Engines
from dlcpd.daemon.peers.membership import Link, LinkInput, LinkState
from dlcpd.daemon.peers.peer_messages import (
    Abort,
    Goodbye,
    Leaving,
    PeerHello,
    PeerMessage,
    PlanMessage,
)
from dlcpd.daemon.peers.peers import PeerAddress, PeerCallbacks
from dlcpd.daemon.sessions.aborts import AbortQueue
from dlcpd.daemon.sessions.network_news import NetworkNews
from dlcpd.daemon.sessions.session import LocalSession, address_of
from dlcpd.daemon.sessions.sessions import Sessions
from dlcpd.io.commands import AbortedOperation, PeerDoubted, PeerGone, PeerLeft
from dlcpd.io.control_events import (
    Event,
    FailedOperation,
    FlowsProbed,
    LedgerEnded,
    LeftOpen,
    NetworkPromised,
    OperationsFailed,
    PathChanged,
    PathMtuChanged,
    PeerChanged,
    SessionDelivered,
    SessionEnded,
    SessionFailed,
    SessionLeft,
    SessionOpened,
)

SessionNews = (
    SessionOpened | SessionEnded | SessionLeft | SessionDelivered | NetworkPromised | FlowsProbed
)


class Dispatch:
    """Routes messages and events to sessions. A message that fits none is counted and dropped."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sessions: Sessions,
        engines: Engines,
        counters: Counter[str],
        key: str,
    ) -> None:
        """`key` is this daemon's."""
        self._loop = loop
        self._sessions, self._engines, self._counters = sessions, engines, counters
        self._key = key
        self._aborts = AbortQueue(loop, engines, counters)
        self.network_news = NetworkNews(loop, engines, counters)

    def peer_message(self, key: str, message: PeerMessage) -> None:
        """A message that came under the CURVE key `key`."""
        session = self._sessions.table.addressed(message)
        link = session.membership.links.get(message.from_rank) if session else None
        if session is None or link is None or not session.begun:
            self._counters["peer_unknown_session"] += 1  # a hello is repeated until its time comes
        elif link.key != key:
            self._counters["peer_wrong_key"] += 1
        elif isinstance(message, PeerHello):
            self._hello(session, link, message)
        elif isinstance(message, Goodbye):
            self._goodbye(session, link, message)
        elif isinstance(message, Leaving):
            self._leaving(session, link, message)
        elif isinstance(message, PlanMessage):
            if not self._sessions.planner.message(session, link, message):
                self._counters["peer_stale"] += 1
        else:
            self._abort(session, link, message)

    def other_version(self, key: str, version: int) -> None:
        """The peer with this key speaks another protocol: no join with it can succeed."""
        for session in self._sessions.table:
            for link in session.membership.links.values():
                if link.key == key and not session.joined_at:
                    error = session.membership.other_version(link, version)
                    self._sessions.ends.refuse(session, error)
                    break

    def turned_away(self, address: PeerAddress, code: str) -> None:
        """The daemon at `address` refuses this one: end the sessions that need it."""
        if code != NotAuthorised.code:
            return  # of a later release: joins time out, and name the peer

        def why(link: Link) -> NotAuthorised:
            return NotAuthorised(
                f"{link} ({link.endpoint}) does not authorise the key of this host, {self._key}: "
                f"let `dlcpctl keys authorise` add there what `dlcpctl keys show` prints here"
            )

        self._sessions.ends.end_all(lambda link: address_of(link) == address, why)

    def daemon_lost(self, address: PeerAddress, sign: str) -> None:
        """There is a sign that the daemon at `address` has ended: the engines ask its ranks."""
        for session in self._sessions.table:
            for link in session.membership.links.values():
                if session.opened and link.state is LinkState.UP and address_of(link) == address:
                    self._engines.send_all(PeerDoubted(session.number, link.rank, sign))

    def revoked(self, keys: Collection[str]) -> None:
        """The operator of this host revoked these keys: end the sessions that use them."""

        def why(link: Link) -> NotAuthorised:
            return NotAuthorised(f"{link}: its key {link.key} was revoked on this host")

        self._sessions.ends.end_all(lambda link: link.key in keys, why)

    def engine_event(self, engine: int, event: Event) -> None:
        """An engine's event about a session; it may have been closed in the meantime."""
        match event:
            case OperationsFailed(number, failures):
                if session := self._sessions.table.numbered(number):
                    self._operations_failed(session, engine, failures)
            case LeftOpen() | SessionFailed():
                if session := self._sessions.table.numbered(event.session):
                    self._job_failed(session, event)
            case LedgerEnded(number, text):
                log.error("ledger_ended", session=number, engine=engine, text=text)
            case _ if isinstance(event, SessionNews):
                self._session_news(engine, event)
            case PathChanged() | PeerChanged() | PathMtuChanged():
                if session := self._sessions.table.numbered(event.session):
                    self.network_news.tell(session, engine, event)
            case _:
                log.error("engine_event_unknown", event_kind=type(event).__name__)

    def _job_failed(self, session: LocalSession, event: LeftOpen | SessionFailed) -> None:
        if isinstance(event, LeftOpen):
            self._counters["left_open"] += 1
            text = "the client ended before these operations had results"
            if not event.operations:
                text = "the client ended without leaving its session, as one that is killed"
            log.warning("left_open", session=session, operations=event.operations, text=text)
        elif not session.broken:  # else another engine reported it
            rank, code, text = event.rank, event.code, event.text
            tell = _severity(session, rank, code, event.failed)
            tell("session_broken", session=session, peer=rank, code=code, text=text)
            session.broken, session.broken_code = text, code
            session.silence.clear()
            self._counters[f"broken_{code}"] += 1
            self._sessions.ends.part(session, code, f"{session}: {text}")

    def _session_news(self, engine: int, event: SessionNews) -> None:
        session = self._sessions.table.numbered(event.session)
        if isinstance(event, SessionEnded):
            self._session_ended(engine, session, event)
        elif session is None:
            return
        elif isinstance(event, SessionLeft):
            self._sessions.ends.left(session, engine, event)
        elif isinstance(event, SessionDelivered):
            self._sessions.ends.delivered(session, engine, event.lacking)
        elif isinstance(event, NetworkPromised):
            self._sessions.planner.promised(session, engine, event)
        elif isinstance(event, FlowsProbed):
            self._sessions.planner.probing.prober.parts.probed(session, event)
        else:
            self._sessions.joining.serves(session, engine)

    def _session_ended(
        self, engine: int, session: LocalSession | None, event: SessionEnded
    ) -> None:
        if event.trace:
            self._counters["internal"] += 1
            log.error("internal", engine=engine, code=event.code, text=event.trace)
        error = error_for(event.code, event.text)
        if session and session.joined_at:
            self._sessions.ends.abandon(session, error)
        elif session:
            self._sessions.ends.refuse(session, error)

    def _operations_failed(
        self, session: LocalSession, engine: int, failures: list[FailedOperation]
    ) -> None:
        """Peers get only operations that failed here first: else aborts would echo endlessly."""
        for failed in failures:
            session.aborts.learn(engine, failed)
        first = [failed for failed in failures if failed.code != OperationAborted.code]
        if not first:
            return
        log.warning(
            "operation_failed",
            session=session,
            stream=first[0].stream,
            operation=first[0].operation,
            code=first[0].code,
            text=first[0].text,
            and_others=len(first) - 1,
        )
        self._sessions.ends.abort(session, engine, first)

    def _hello(self, session: LocalSession, link: Link, hello: PeerHello) -> None:
        membership = session.membership
        if membership.rejoined(link, hello) and session.opened:
            self._replaced(session, link)
            return
        try:
            if not session.joined_at:
                membership.joining_hello(link, hello)
        except (NotAuthorised, RanksDisagree) as exc:
            # so that the peer can name the disagreement too
            self._sessions.joining.hello(session, link)
            self._sessions.ends.refuse(session, exc)
            return
        if hello.answer and hello.session == link.session:
            self._sessions.joining.hello(session, link)
        self._sessions.joining.advance(session)

    def _replaced(self, session: LocalSession, link: Link) -> None:
        """A peer's session that the local engines know has been replaced."""
        text = f"{link} joined again: its earlier session is over"
        if session.joined_at:
            self._gone(session, link, text)
        else:
            self._sessions.ends.refuse(session, PeerLost(text))

    def _goodbye(self, session: LocalSession, link: Link, goodbye: Goodbye) -> None:
        if session.joined_at:
            if session.membership.concerns(link, goodbye):
                self._gone(session, link, goodbye.text)
            else:
                self._counters["peer_stale"] += 1
        elif session.membership.joining_goodbye(link, goodbye):
            self._sessions.ends.refuse(session, _join_error(link, goodbye))

    def _leaving(self, session: LocalSession, link: Link, said: Leaving) -> None:
        known = session.opened and said.engine < session.membership.engines_used
        if not known or not session.membership.concerns(link, said):
            self._counters["peer_stale"] += 1
            return
        if not link.leaving:
            log.info("peer_leaving", session=session, peer=link, text=said.text)
        link.leaving = True
        self._sessions.planner.gone(session, link, leaving=True)
        left = PeerLeft(session.number, link.rank, said.text, said.begun, said.last)
        self._engines.send(said.engine, left)

    def _abort(self, session: LocalSession, link: Link, abort: Abort) -> None:
        membership = session.membership
        known = session.opened and abort.engine < membership.engines_used
        if not known or not membership.concerns(link, abort):
            self._counters["peer_stale"] += 1
            return
        for row in abort.aborted:
            aborted = AbortedOperation(link.rank, *row)
            engine = session.engines[abort.engine]
            self._aborts.add(session.number, session.aborts, engine, aborted)

    def _gone(self, session: LocalSession, link: Link, text: str) -> None:
        log.info("peer_gone", session=session, peer=link, text=text)  # its effects log warnings
        link.step(LinkInput.LEAVE)
        link.end_reason = text
        self._sessions.planner.gone(session, link)
        self._engines.send_all(PeerGone(session.number, link.rank, text))


def _severity(session: LocalSession, rank: int, code: str, failed: int) -> Callable[..., None]:
    """The log function for a broken session: info after a peer's goodbye where no operation failed,
    a job's usual end."""
    if code == ReplicaDivergence.code:
        return log.error
    link = session.membership.links.get(rank)
    usual = link and link.state is LinkState.GONE and not failed
    return log.info if usual else log.warning


def _join_error(link: Link, goodbye: Goodbye) -> DlcpError:
    """The error of a join after a peer's goodbye: the same if it concerns both, else PeerLost."""
    text = f"{link} left while joining: {goodbye.text}"
    kept = (NotAuthorised.code, RanksDisagree.code)
    return error_for(goodbye.code, text) if goodbye.code in kept else PeerLost(text)


def peer_callbacks(dispatch: Callable[[], Dispatch]) -> PeerCallbacks:
    """Callbacks of peers for a dispatch that is made after them."""
    return PeerCallbacks(
        lambda key, message: dispatch().peer_message(key, message),
        lambda key, version: dispatch().other_version(key, version),
        lambda address, code: dispatch().turned_away(address, code),
        lambda address, sign: dispatch().daemon_lost(address, sign),
    )
