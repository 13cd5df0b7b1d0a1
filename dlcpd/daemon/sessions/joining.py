"""Joining: from a client's Join to its Joined, with hellos to peers and commands to engines.

A session is carried by a set of engines. All local sessions of a job have the same set, chosen when
the first of them joins. To peers and clients an engine is a position in the session's set, so hosts
need not choose alike: position k of one host speaks to position k of the others.
"""

import asyncio
import secrets
from functools import partial
from typing import Final

from dlcpd.contract.errors import DlcpError, TooMany
from dlcpd.contract.job_name import title
from dlcpd.contract.messages import Join
from dlcpd.daemon.clients.join_request import links_of, token_prefix
from dlcpd.daemon.engine_slot import SlotState
from dlcpd.daemon.engines import Engines
from dlcpd.daemon.host_costs import HostCosts
from dlcpd.daemon.peers.membership import Link, Membership
from dlcpd.daemon.peers.peer_messages import UNKNOWN
from dlcpd.daemon.peers.peers import Peers
from dlcpd.daemon.sessions.admission import Admission, SessionSettings
from dlcpd.daemon.sessions.ends import Ends
from dlcpd.daemon.sessions.planner import Planner
from dlcpd.daemon.sessions.session import (
    JoinedClient,
    LocalSession,
    address_of,
    cancel_timers,
    close_descriptors,
    duplicates,
    open_command,
    resources,
)
from dlcpd.daemon.sessions.table import SessionTable
from dlcpd.io.control_frames import MAX_COMMAND, pack
from dlcpd.ipc.seqpacket import close_all

RETRY_FIRST: Final = 0.05  # seconds until a hello is repeated; doubled up to RETRY_MAX
RETRY_MAX: Final = 0.5


class Joining:
    """Brings sessions up: peers first, then the local engines, then the client."""

    def __init__(  # noqa: PLR0913  # all but the first three by keyword
        self,
        loop: asyncio.AbstractEventLoop,
        settings: SessionSettings,
        table: SessionTable,
        *,
        admission: Admission,
        ends: Ends,
        peers: Peers,
        engines: Engines,
        planner: Planner,
        costs: HostCosts,
    ) -> None:
        self._loop, self._settings, self._table = loop, settings, table
        self._admission, self._ends = admission, ends
        self._peers, self._engines, self._planner, self._costs = peers, engines, planner, costs
        self._token_prefix = token_prefix()

    def join(self, request: Join, client: JoinedClient) -> LocalSession:
        """Begin to join; `client.joined` or `client.refused` follows.

        Raises: LocalError; nothing changed.
        """
        self._admission.check(request, client)
        engines = self._admission.engines_for(request)
        links = links_of(request, self._token_prefix)
        proof = self._admission.prove(request, links.values())
        number = self._table.next_number()
        membership = Membership(
            job=request.job,
            rank=request.rank,
            session=number,
            host=self._settings.host,
            endpoints=[],  # see `_begin`
            agreed={"world_size": request.world_size, **self._settings.agreed},
            links=links,
            seed=secrets.randbits(64),
            proof=request.proof,
            capacity=self._planner.capacity,
            costs=self._costs.present,
        )
        session = LocalSession(
            number,
            membership,
            client,
            request.arena_bytes,
            request.timeout,
            proof,
            title=self._title(request),
            inherits=request.inherits,
            engines=engines,
        )
        session.descriptors = resources(request.arena_bytes, len(engines))
        try:
            self._peers.admit_all(map(address_of, links.values()))
        except TooMany:
            close_descriptors(session)
            raise
        self._table.add(session)
        session.timers["expire"] = self._loop.call_later(request.timeout, self._expire, session)
        self._begin(session)
        return session

    def _title(self, request: Join) -> str:
        """The job's name for people. The next epoch of a job keeps that of the former."""
        former = self._table.numbered(request.inherits)
        others = {
            session.membership.job: session.title
            for session in self._table
            if former is None or session.membership.job != former.membership.job
        }
        return title(request.job, others)

    def _begin(self, session: LocalSession) -> None:
        """Announce a session to peers once its engines are up; until then it waits."""
        states = [self._engines.state(engine) for engine in session.engines]
        if session.begun or any(state is not SlotState.UP for state in states):
            return
        session.begun = True
        session.membership.endpoints = [self._engines.endpoints(e) for e in session.engines]
        if session.membership.links:
            self._retry(session, RETRY_FIRST)
        else:  # no hello will complete it
            session.timers["alone"] = self._loop.call_soon(self.advance, session)

    def engine_changed(self, engine: int) -> None:
        """An engine is up again, or fails: sessions that wait for it begin, or are refused."""
        for session in self._table:
            if session.begun or engine not in session.engines:
                continue
            if self._engines.state(engine) is SlotState.FAILING:
                self._ends.refuse(session, self._admission.without_engines(session.engines))
            else:
                self._begin(session)

    def hello(self, session: LocalSession, link: Link) -> None:
        """Send a hello to one peer; not before peers know that an earlier session leaves: they
        would count it as lost."""
        if any(other.silent and other.name == session.name for other in self._table):
            return  # it is repeated
        self._peers.send(address_of(link), session.membership.hello_to(link))

    def advance(self, session: LocalSession) -> None:
        """Have the engines serve a session whose links are all up; once all ranks' engines do,
        tell the client."""
        membership = session.membership
        if session.joined_at:
            return
        if not session.opened and membership.met:
            self._measure(session)
            if membership.measured:
                self._open(session)
        elif membership.complete and not session.complete:
            session.complete = True
            cancel_timers(session)
            self._planner.joined(session, partial(self._joined, session))

    def _measure(self, session: LocalSession) -> None:
        """Tell the peers the longest round trip to any of them, once."""
        membership = session.membership
        if membership.round_trip == UNKNOWN:
            links = membership.links.values()
            membership.round_trip = self._peers.round_trip(map(address_of, links))
            for link in links:
                self.hello(session, link)

    def serves(self, session: LocalSession, engine: int) -> None:
        """An engine serves the session."""
        session.opening.discard(engine)
        if session.opening or session.membership.serving:
            return
        session.membership.serving = True
        for link in session.membership.links.values():
            self.hello(session, link)
        self.advance(session)

    def _open(self, session: LocalSession) -> None:
        used = session.membership.engines_used
        self._planner.at_join(session)
        commands = [open_command(session, position) for position in range(used)]
        if (size := max(len(pack(command)) for command in commands)) > MAX_COMMAND:
            error = TooMany(f"{size} B of peers' paths: use fewer [network] paths")
            self._ends.refuse(session, error)
            return
        arena, *ends = session.descriptors
        try:
            arenas = duplicates(arena, used)
        except TooMany as exc:
            self._ends.refuse(session, exc)
            return
        session.opened, session.opening = True, set(session.engines[:used])
        lanes = ends[: 2 * used]
        for position, command in enumerate(commands):
            engine = session.engines[position]
            self._engines.send(engine, command, [arenas[position], lanes[2 * position]])
        close_all(ends[2 * used :])
        session.descriptors = [arena, *lanes[1::2]]

    def _joined(self, session: LocalSession) -> None:
        session.joined_at = self._loop.time()
        descriptors, session.descriptors = session.descriptors, []
        session.client.joined(session.number, session.arena_bytes, descriptors)

    def _retry(self, session: LocalSession, delay: float) -> None:
        for link in session.membership.waiting:
            self.hello(session, link)
        session.timers["retry"] = self._loop.call_later(
            delay, self._retry, session, min(2 * delay, RETRY_MAX)
        )

    def _expire(self, session: LocalSession) -> None:
        error: DlcpError = session.membership.timed_out(session.timeout)
        if not session.begun:
            error = self._admission.without_engines(session.engines)
        self._ends.refuse(session, error)
