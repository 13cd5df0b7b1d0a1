"""The sessions of this host, from Join to leaving: commands to engines, messages to peers.

A session is carried by a set of engines. All local sessions of a job have the same set, chosen when
the first of them joins. To peers and clients an engine is a position in the session's set, so hosts
need not choose alike: position k of one host speaks to position k of the others.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from dlcpd.contract.errors import (
    DaemonUnavailable,
    DlcpError,
    NotPermitted,
    PeerLost,
    SessionClosed,
    TooMany,
)
from dlcpd.contract.messages import DELIVERY, Join
from dlcpd.daemon import log
from dlcpd.daemon.clients.join_request import links_of, token_prefix
from dlcpd.daemon.engine_slot import State
from dlcpd.daemon.engines import Engines
from dlcpd.daemon.peers.membership import Link, LinkState, Membership
from dlcpd.daemon.peers.peer_messages import AbortedRow, PeerMessage
from dlcpd.daemon.peers.peers import Peers
from dlcpd.daemon.sessions.proof import (
    HOW_TO_PROVE,
    UNPROVED,
    Proof,
    check_keys,
    proof_of,
    refusal,
)
from dlcpd.daemon.sessions.session import (
    Client,
    Session,
    address_of,
    cancel_timers,
    close_descriptors,
    duplicates,
    open_command,
    resources,
)
from dlcpd.io.commands import MAX_ABORT_TEXT, CloseSession, LeaveSession
from dlcpd.io.control_events import FailedOperation, SessionLeft
from dlcpd.io.control_frames import MAX_COMMAND, pack
from dlcpd.ipc.seqpacket import close_all

RETRY_FIRST: Final = 0.05  # seconds until a hello is repeated; doubled up to RETRY_MAX
RETRY_MAX: Final = 0.5
DELIVERY_MARGIN: Final = 5.0  # seconds that an engine may take beyond DELIVERY to say so


@dataclass(frozen=True, slots=True)
class Terms:
    """Values that all sessions of this daemon share."""

    host: str
    engines_per_job: int  # 0: all
    agreed: dict[str, int]  # settings that hellos compare, without world_size
    max_sessions: int
    max_arena_bytes: int
    refuse_unproved: bool  # jobs whose peers only the job's store names


class Sessions:
    """Opens, finds and closes sessions; tells peers and engine."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        terms: Terms,
        *,
        peers: Peers,
        engines: Engines,
    ) -> None:
        self._loop, self._terms, self._peers, self._engines = loop, terms, peers, engines
        self._by_name: dict[tuple[str, int], Session] = {}
        self._by_number: dict[int, Session] = {}
        # Random start: unlike any earlier process's. Counting up: peers tell old from new.
        self._last_number = secrets.randbits(30) << 32
        self._token_prefix = token_prefix()
        self.draining = False
        self.stopped = False  # no engine is left that could deliver anything
        self.on_forgotten: Callable[[], None] = lambda: None

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._by_number.values()))

    def __len__(self) -> int:
        return len(self._by_number)

    def named(self, job: str, rank: int) -> Session | None:
        """The session of a local rank."""
        return self._by_name.get((job, rank))

    def numbered(self, number: int) -> Session | None:
        """The session the engine means; None when it has just been closed."""
        return self._by_number.get(number)

    def join(self, request: Join, client: Client) -> Session:
        """Begin to join; `client.joined` or `client.refused` follows.

        Raises: LocalError; nothing changed.
        """
        self._check(request)
        self._check_heir(request, client)
        engines = self._carriers(request)
        links = links_of(request, self._token_prefix)
        proof = self._prove(request, links.values())
        self._last_number += 1
        membership = Membership(
            job=request.job,
            rank=request.rank,
            session=self._last_number,
            host=self._terms.host,
            endpoints=[],  # see `_begin`
            agreed={"world_size": request.world_size, **self._terms.agreed},
            links=links,
            seed=secrets.randbits(64),
            proof=request.proof,
        )
        session = Session(
            self._last_number,
            membership,
            client,
            request.arena_bytes,
            request.timeout,
            proof,
            inherits=request.inherits,
            engines=engines,
        )
        session.descriptors = resources(request.arena_bytes, len(engines))
        try:
            self._peers.admit_all(map(address_of, links.values()))
        except TooMany:
            close_descriptors(session)
            raise
        self._by_name[session.name] = self._by_number[session.number] = session
        session.timers["expire"] = self._loop.call_later(request.timeout, self._expire, session)
        self._begin(session)
        return session

    def _begin(self, session: Session) -> None:
        """Announce a session to peers once its engines are up; until then it waits."""
        states = [self._engines.state(engine) for engine in session.engines]
        if session.begun or any(state is not State.UP for state in states):
            return
        session.begun = True
        session.membership.endpoints = [self._engines.endpoints(e) for e in session.engines]
        if session.membership.links:
            self._retry(session, RETRY_FIRST)
        else:  # no hello will complete it
            session.timers["alone"] = self._loop.call_soon(self.advance, session)

    def engine_changed(self, engine: int) -> None:
        """An engine is up again, or fails: sessions that wait for it begin, or are refused."""
        for session in self:
            if session.begun or engine not in session.engines:
                continue
            if self._engines.state(engine) is State.FAILING:
                self.refuse(session, self._without_engines(session.engines))
            else:
                self._begin(session)

    def engine_ended(self, engine: int, error: DlcpError) -> None:
        """End the sessions of an engine that ended; the others go on."""
        for session in self:
            here = self._by_number.get(session.number) is session  # not ended with an earlier one
            if here and session.begun and engine in session.engines:
                self.end(session, error)

    def addressed(self, message: PeerMessage) -> Session | None:
        """The session that a peer's message is for, even if it is leaving."""
        meant = self._by_number.get(message.echo)
        if meant is not None and meant.name == (message.job, message.to_rank):
            return meant
        return self.named(message.job, message.to_rank)

    def hello(self, session: Session, link: Link) -> None:
        """Send a hello to one peer; not before peers know that an earlier session leaves: they
        would count it as lost."""
        if any(other.silent and other.name == session.name for other in self):
            return  # it is repeated
        self._peers.send(address_of(link), session.membership.hello_to(link))

    def advance(self, session: Session) -> None:
        """Have the engines serve a session whose links are all up; once all ranks' engines do,
        tell the client."""
        if session.joined_at:
            return
        if not session.opened and session.membership.met:
            self._open(session)
        elif session.membership.complete:
            self._joined(session)

    def serves(self, session: Session, engine: int) -> None:
        """An engine serves the session."""
        session.opening.discard(engine)
        if session.opening or session.membership.serving:
            return
        session.membership.serving = True
        for link in session.membership.links.values():
            self.hello(session, link)
        self.advance(session)

    def _open(self, session: Session) -> None:
        used = session.membership.engines_used
        commands = [open_command(session, position) for position in range(used)]
        if (size := max(len(pack(command)) for command in commands)) > MAX_COMMAND:
            self.refuse(session, TooMany(f"{size} B of peers' paths: use fewer [network] paths"))
            return
        arena, *ends = session.descriptors
        try:
            arenas = duplicates(arena, used)
        except TooMany as exc:
            self.refuse(session, exc)
            return
        session.opened, session.opening = True, set(session.engines[:used])
        lanes = ends[: 2 * used]
        for position, command in enumerate(commands):
            engine = session.engines[position]
            self._engines.send(engine, command, [arenas[position], lanes[2 * position]])
        close_all(ends[2 * used :])
        session.descriptors = [arena, *lanes[1::2]]

    def _joined(self, session: Session) -> None:
        cancel_timers(session)
        session.joined_at = self._loop.time()
        descriptors, session.descriptors = session.descriptors, []
        session.client.joined(session.number, session.arena_bytes, descriptors)

    def refuse(self, session: Session, error: DlcpError) -> None:
        """The join failed: tell peers and client, and forget the session."""
        log.warning("join_refused", session=session, code=error.code, text=error)
        self._forget(session, error)
        session.client.refused(error)

    def leave(self, session: Session, error: DlcpError) -> None:
        """The client is gone. An open session still delivers the operations that it began; peers
        are told at once that it begins no more."""
        if self.stopped or not session.joined_at or session.broken or session.leaving:
            self.close(session, error)
            return
        self._engines.listen()
        if self._by_number.get(session.number) is not session or session.leaving:
            return
        session.leaving, session.silent = error, True
        session.delivering = set(range(session.membership.engines_used))
        del self._by_name[session.name]
        self._engines.send_all(LeaveSession(session.number, error.code, str(error)))
        late = DELIVERY + DELIVERY_MARGIN
        session.timers["late"] = self._loop.call_later(late, self.close, session, error)

    def left(self, session: Session, engine: int, left: SessionLeft) -> None:
        """An engine says after which operations the client of a session left."""
        session.silent = False
        link = session.membership.links.get(left.rank)
        if link is not None and link.state is LinkState.UP:
            why = f"{session}: {session.leaving or 'its client ended'}"
            self._peers.send(
                address_of(link), session.membership.leaving_to(link, engine, why, left)
            )

    def delivered(self, session: Session, engine: int, lacking: str) -> None:
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

    def close(self, session: Session, error: DlcpError) -> None:
        """Close a session everywhere.

        Events of engines come first: if the client left because of one, peers must get that reason.
        """
        self._engines.listen()
        if self._by_number.get(session.number) is not session:
            return
        self._forget(session, error)

    def abandon(self, session: Session, error: DlcpError) -> None:
        """End an open session: close it everywhere and tell the client why."""
        leaving = session.leaving
        self.close(session, error)
        if not leaving:  # else no client is connected
            session.client.lost(error)

    def end(self, session: Session, error: DlcpError) -> None:
        """End a session that is joining or open."""
        if session.joined_at:
            self.abandon(session, error)
        else:
            self.refuse(session, error)

    def end_all(self, concerns: Callable[[Link], bool], why: Callable[[Link], DlcpError]) -> None:
        """End each session with a peer for which `concerns` is true."""
        for session in self:
            link = next(filter(concerns, session.membership.links.values()), None)
            if link:
                self.end(session, why(link))

    def part(self, session: Session, code: str, text: str) -> None:
        """Tell the peers, once, that no further operation of this rank will succeed."""
        if session.parted:
            return
        session.parted = True
        for link in session.membership.links.values():
            if link.state is not LinkState.GONE:
                goodbye = session.membership.goodbye_to(link, code, text)
                self._peers.send(address_of(link), goodbye)

    def abort(self, session: Session, engine: int, failures: list[FailedOperation]) -> None:
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

    def _check(self, request: Join) -> None:
        """Raises: LocalError."""
        terms = self._terms
        if self.draining:
            raise DaemonUnavailable(f"dlcpd on {terms.host} is stopping; join again later")
        if (request.job, request.rank) in self._by_name:
            raise NotPermitted(
                f"rank {request.rank} of job {request.job!r} has a session on {terms.host} "
                f"already: give each job its own name, or end the process that holds it"
            )
        if self._engines.busy:
            raise TooMany(f"an engine of dlcpd on {terms.host} is behind; join again later")
        if len(self) >= terms.max_sessions:
            raise TooMany(
                f"dlcpd on {terms.host} serves {len(self)} sessions, the most that "
                f"[daemon] max_sessions allows"
            )
        if request.arena_bytes > terms.max_arena_bytes:
            raise TooMany(
                f"an arena of {request.arena_bytes} B is more than the {terms.max_arena_bytes} B "
                f"that [daemon] max_arena_bytes on {terms.host} allows"
            )

    def _prove(self, request: Join, links: Collection[Link]) -> Proof:
        """Raises: NotAuthorised."""
        authorised, host = self._peers.authorised, self._terms.host
        check_keys(links, authorised, host)
        proof = proof_of(links, request.proof, authorised, self._peers.endpoint)
        if proof is Proof.NONE:
            if self._terms.refuse_unproved:
                raise refusal(request, host)
            if request.job not in {session.name[0] for session in self}:  # once per job
                log.warning("peers_unproved", job=request.job, text=f"{UNPROVED}: {HOW_TO_PROVE}")
        return proof

    def _check_heir(self, request: Join, client: Client) -> None:
        """Residuals are gradients: no user gets those of another. Raises: NotPermitted."""
        former = self._by_number.get(request.inherits)
        if former is not None and former.client.uid != client.uid:
            raise NotPermitted(f"session {request.inherits} belongs to another user")

    def _retry(self, session: Session, delay: float) -> None:
        for link in session.membership.waiting:
            self.hello(session, link)
        session.timers["retry"] = self._loop.call_later(
            delay, self._retry, session, min(2 * delay, RETRY_MAX)
        )

    def _expire(self, session: Session) -> None:
        late: DlcpError = session.membership.timed_out(session.timeout)
        self.refuse(session, late if session.begun else self._without_engines(session.engines))

    def _carriers(self, request: Join) -> tuple[int, ...]:
        """Engines for a new session: those of the session whose residuals it takes over, since the
        engines keep them; else those of the job's other local sessions; else those with fewest
        sessions.

        Raises: DaemonUnavailable.
        """
        former = self._by_number.get(request.inherits)
        if former:
            return former.engines
        for session in self:
            if session.name[0] == request.job:
                return session.engines
        load = Counter(engine for session in self for engine in session.engines)
        chosen = self._engines.choose(self._terms.engines_per_job, load)
        if not chosen:
            raise self._without_engines(range(len(self._engines)))
        return chosen

    def _without_engines(self, engines: Sequence[int]) -> DaemonUnavailable:
        return DaemonUnavailable(
            f"dlcpd on {self._terms.host}: {self._engines.conditions(engines)}; join again later"
        )

    def _forget(self, session: Session, error: DlcpError) -> None:
        """Tell engines and peers, and free the session's resources."""
        if session.opened:
            self._engines.send_all(CloseSession(session.number, error.code, str(error)))
        self.part(session, error.code, f"{session}: {error}")
        cancel_timers(session)
        if self._by_name.get(session.name) is session:
            del self._by_name[session.name]
        del self._by_number[session.number]
        for link in session.membership.links.values():
            self._peers.dismiss(address_of(link))
        close_descriptors(session)
        self.on_forgotten()
