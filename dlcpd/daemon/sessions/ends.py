"""Ends of sessions: how the client, the peers and the engines learn that a session is over."""

import asyncio
from collections.abc import Callable
from typing import Final

from dlcpd.contract.errors import DlcpError, PeerLost, SessionClosed
from dlcpd.contract.messages import DELIVERY
from dlcpd.daemon import log
from dlcpd.daemon.engines import Engines
from dlcpd.daemon.peers.membership import Link, LinkState
from dlcpd.daemon.peers.peer_messages import AbortedRow
from dlcpd.daemon.peers.peers import Peers
from dlcpd.daemon.sessions.session import LocalSession, address_of, cancel_timers, close_descriptors
from dlcpd.daemon.sessions.table import SessionTable
from dlcpd.io.commands import MAX_ABORT_TEXT, CloseSession, LeaveSession
from dlcpd.io.control_events import FailedOperation, SessionLeft

DELIVERY_MARGIN: Final = 5.0  # seconds that an engine may take beyond DELIVERY to say so


class Ends:
    """Ends sessions and single operations, and frees the resources of sessions."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        table: SessionTable,
        *,
        peers: Peers,
        engines: Engines,
    ) -> None:
        self._loop, self._table, self._peers, self._engines = loop, table, peers, engines
        self.stopped = False  # no engine is left that could deliver anything
        # called before the peers learn that a session ends, once or more often
        self.on_leaving: Callable[[LocalSession], None] = lambda session: None
        self.on_forgotten: Callable[[], None] = lambda: None  # called after each end

    def refuse(self, session: LocalSession, error: DlcpError) -> None:
        """The join failed: tell peers and client, and forget the session."""
        log.warning("join_refused", session=session, code=error.code, text=error)
        self._forget(session, error)
        session.client.refused(error)

    def leave(self, session: LocalSession, error: DlcpError) -> None:
        """The client is gone. An open session still delivers the operations that it began; peers
        are told at once that it begins no more."""
        if self.stopped or not session.joined_at or session.broken or session.leaving:
            self.close(session, error)
            return
        self._engines.listen()
        if session not in self._table or session.leaving:
            return
        self.on_leaving(session)
        session.leaving, session.silent = error, True
        session.delivering = set(range(session.membership.engines_used))
        self._table.free_name(session)
        self._engines.send_all(LeaveSession(session.number, error.code, str(error)))
        late = DELIVERY + DELIVERY_MARGIN
        session.timers["late"] = self._loop.call_later(late, self.close, session, error)

    def left(self, session: LocalSession, engine: int, left: SessionLeft) -> None:
        """An engine says after which operations the client of a session left."""
        session.silent = False
        link = session.membership.links.get(left.rank)
        if link is not None and link.state is LinkState.UP:
            why = f"{session}: {session.leaving or 'its client ended'}"
            self._peers.send(
                address_of(link), session.membership.leaving_to(link, engine, why, left)
            )

    def delivered(self, session: LocalSession, engine: int, lacking: str) -> None:
        """An engine ended its delivery of a session; `lacking`: what peers did not get, or "".

        Its client may still be connected here, though it has closed its lanes.
        """
        if lacking:
            log.warning("not_delivered", session=session, engine=engine, text=lacking)
        if session.leaving is None:
            self.abandon(session, SessionClosed("the client ended"))
            return
        session.delivering.discard(engine)
        if not session.delivering:
            self.close(session, session.leaving)

    def close(self, session: LocalSession, error: DlcpError) -> None:
        """Close a session everywhere.

        Events of engines come first: if the client left because of one, peers must get that reason.
        """
        self._engines.listen()
        if session not in self._table:
            return
        self._forget(session, error)

    def abandon(self, session: LocalSession, error: DlcpError) -> None:
        """End an open session: close it everywhere and tell the client why."""
        leaving = session.leaving
        self.close(session, error)
        if not leaving:  # else no client is connected
            session.client.lost(error)

    def end(self, session: LocalSession, error: DlcpError) -> None:
        """End a session that is joining or open."""
        if session.joined_at:
            self.abandon(session, error)
        else:
            self.refuse(session, error)

    def end_all(self, concerns: Callable[[Link], bool], why: Callable[[Link], DlcpError]) -> None:
        """End each session with a peer for which `concerns` is true."""
        for session in self._table:
            link = next(filter(concerns, session.membership.links.values()), None)
            if link:
                self.end(session, why(link))

    def engine_ended(self, engine: int, error: DlcpError) -> None:
        """End the sessions of an engine that ended; the others go on."""
        for session in self._table:
            here = session in self._table  # not ended with an earlier one
            if here and session.begun and engine in session.engines:
                self.end(session, error)

    def part(self, session: LocalSession, code: str, text: str) -> None:
        """Tell the peers, once, that no further operation of this rank will succeed."""
        if session.parted:
            return
        session.parted = True
        self.on_leaving(session)
        for link in session.membership.links.values():
            if link.state is not LinkState.GONE:
                goodbye = session.membership.goodbye_to(link, code, text)
                self._peers.send(address_of(link), goodbye)

    def abort(self, session: LocalSession, engine: int, failures: list[FailedOperation]) -> None:
        """Tell the peers that wait for operations of an engine that this rank aborted them."""
        membership = session.membership
        for link in membership.links.values():
            rows = [
                AbortedRow(
                    f.stream,
                    f.operation,
                    f"{session}: {f.text}"[:MAX_ABORT_TEXT],
                    f.peer if f.code == PeerLost.code else -1,
                )
                for f in failures
                if link.state is LinkState.UP and link.rank in f.ranks
            ]
            for message in membership.aborts_to(link, session.engines.index(engine), rows):
                self._peers.send(address_of(link), message)

    def _forget(self, session: LocalSession, error: DlcpError) -> None:
        """Tell engines and peers, and free the session's resources."""
        if session.opened:
            self._engines.send_all(CloseSession(session.number, error.code, str(error)))
        self.part(session, error.code, f"{session}: {error}")
        cancel_timers(session)
        self._table.remove(session)
        for link in session.membership.links.values():
            self._peers.dismiss(address_of(link))
        close_descriptors(session)
        self.on_forgotten()
