"""The engine's pure half: takes datagrams in, runs timers, yields batches.

Drive it with `receive`, `handle_timeout` and `submit`; after each, drain `transmit`,
`controls` and the sessions' events, and wake up again by `next_timeout`.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Final

from dlcpd.contract.traffic import DROP_PRECEDENCES
from dlcpd.core.demultiplexer import Demultiplexer, Fault
from dlcpd.core.grants import Grants
from dlcpd.core.inbox import Inbox
from dlcpd.core.local_exchange import LocalExchange
from dlcpd.core.own_time import OwnTime
from dlcpd.core.paths.health import ALARM_LOSS
from dlcpd.core.paths.incast import ArrivalRate
from dlcpd.core.paths.link_rate import HostLink, LinkPart
from dlcpd.core.paths.paths import Paths
from dlcpd.core.room import Room
from dlcpd.core.send_scheduler import SendScheduler
from dlcpd.core.session.agenda import Agenda
from dlcpd.core.session.bundling import bundled
from dlcpd.core.session.digests import Digester, HashRows
from dlcpd.core.session.flow import Flow
from dlcpd.core.session.session import Session
from dlcpd.core.session.stream_ids import stream_id
from dlcpd.core.session.totals import Totals
from dlcpd.core.timers import Timer, TimerTable
from dlcpd.core.touched_flows import TouchedFlows
from dlcpd.core.trace import Trace
from dlcpd.core.transfer.early import MAX_SESSION
from dlcpd.core.transfer.incoming import NoPlacement, Placement
from dlcpd.core.wire import nh
from dlcpd.core.wire.checksum import Keyring
from dlcpd.core.wire.datagram import Batch, Control, Transmit
from dlcpd.core.wire.header import KIND, Header, Kind

MAX_FLOWS: Final = 4096  # of all sessions of an engine
MOST_SMALL: Final = 64  # batches of one segment that may join control, per wake-up
_NAMES: Final = {int(kind): kind.name for kind in Kind}  # of control datagrams, for `effort`


@dataclass(frozen=True, slots=True)
class PeerSpec:
    """One peer of a session, as the control process described it."""

    rank: int
    host: str
    token_in: int  # in datagrams from the peer
    token_out: int  # in datagrams to the peer
    paths: int
    secret_in: bytes = b""  # keys the checksums of the peer's datagrams; empty: it has none


@dataclass(slots=True, eq=False, repr=False)
class Endpoint:
    """All sessions of one engine."""

    segment_size: int
    grant: int  # bytes that all peers together may have in flight towards this engine
    scheduler: SendScheduler
    host: str = "localhost"  # name of this host
    max_window: int = 1 << 30  # bytes one peer may have in flight towards this engine
    congestion_control: bool = True
    alarm_loss: float = ALARM_LOSS  # fraction that makes a path gray
    counters: Counter[str] = field(default_factory=Counter)  # refused datagrams and faults
    effort: Counter[str] = field(default_factory=Counter)  # work done: datagrams, system calls
    placement: Placement = field(default_factory=NoPlacement)
    keys: Keyring = field(default_factory=Keyring)  # of the peers
    hash_rows: HashRows = nh.of_rows  # or the compiled one of io
    timers: TimerTable = field(default_factory=TimerTable)
    trace: Trace = field(default_factory=Trace)  # of all operations
    sessions: dict[int, Session] = field(default_factory=dict)
    ended: Totals = field(default_factory=Totals)  # of the sessions that have ended
    flows: dict[int, Flow] = field(default_factory=dict)  # by index
    own_time: OwnTime = field(default_factory=OwnTime)
    link: HostLink = field(default_factory=HostLink)
    inbox: Inbox = field(default_factory=Inbox)  # datagrams beyond MOST_STRAYS
    full: set[int] = field(default_factory=set)  # paths whose sockets are full now
    _agenda: Agenda = field(default_factory=Agenda)
    _faults: list[Fault] = field(default_factory=list)
    _next_index: int = 0
    _grants: Grants = field(init=False)
    _touched: TouchedFlows = field(init=False)
    _demultiplexer: Demultiplexer = field(init=False)
    _local: LocalExchange = field(init=False)

    def __post_init__(self) -> None:
        self._grants = Grants(self.grant, self.max_window, self.congestion_control, ArrivalRate())
        self._touched = TouchedFlows(self._agenda, self.flows)
        places = self.keys, self.inbox, self._grants.arriving, self._faults
        self._demultiplexer = Demultiplexer(self.sessions, self.counters, self.effort, *places)
        self._local = LocalExchange(self._touched, self._demultiplexer, self._faults)

    # --- bugs ---------------------------------------------------------------------

    def fault(self, number: int, bug: Exception) -> None:
        """Record a bug in the work for session `number`; 0: for no session in particular.

        Work for one session catches every exception: the caller closes that session, and the others
        are not affected.
        """
        self._faults.append((number, bug))

    def take_faults(self) -> list[Fault]:
        """(session, exception) of the faults since the last call; session 0: see `fault`."""
        faults = self._faults.copy()
        self._faults.clear()
        return faults

    # --- sessions -----------------------------------------------------------------

    def open_session(
        self,
        number: int,
        rank: int,
        peers: list[PeerSpec],
        *,
        peer_timeout: float,
        suspect_after: float = 1.0,
        digest_key: bytes = b"",
    ) -> Session:
        """A session and a flow to every peer; `flow.index` is for io's address table.
        `digest_key`: the same on all ranks."""
        session = Session(
            number,
            rank,
            len(peers) + 1,
            self.timers,
            self.counters,
            peer_timeout,
            suspect_after,
            self.host,
            Digester(digest_key, self.hash_rows),
            trace=self.trace,
        )
        early = Room(MAX_SESSION)
        for peer in peers:
            flow = self._open_flow(session, peer)
            flow.arrivals.early.session = early
            session.flows[peer.rank] = flow
            self._demultiplexer.add(flow, peer.secret_in)
            self.flows[flow.index] = flow
            if twin := self.flow_of(peer.token_out):  # both ranks are here: data stay in memory
                flow.twin, twin.twin = twin, flow
        self.sessions[number] = session
        self.scheduler.turn += rank  # or all engines would begin with the same peer
        self._grants.share(self.flows.values())
        return session

    def _open_flow(self, session: Session, peer: PeerSpec) -> Flow:
        self._next_index += 1
        return Flow(
            index=self._next_index,
            session=session.callbacks,
            rank=peer.rank,
            host=peer.host,
            token_in=peer.token_in,
            token_out=peer.token_out,
            segment_size=self.segment_size,
            window=0,
            grant=0,
            placement=self.placement,
            agenda=self._agenda,
            paths=Paths.new(
                peer.paths,
                congestion_control=self.congestion_control,
                alarm_loss=self.alarm_loss,
                seed=peer.token_in,
                full=self.full,
                link=LinkPart.of(self.link.out, peer.host, self.host),
            ),
            link=LinkPart.of(self.link.into, peer.host, self.host),
        )

    def close_session(self, number: int) -> None:
        """Forget a session; its tokens are unknown from now on."""
        session = self.sessions.pop(number)
        self.ended.add(session.outcomes.totals)
        self.scheduler.forget(number)
        for flow in session.flows.values():
            flow.arrivals.close()
            self._demultiplexer.remove(flow)
            self._agenda.forget(flow.index)
            self._touched.forget(flow.index)
            del self.flows[flow.index]
        gone = {id(flow) for flow in session.flows.values()}
        for flow in self.flows.values():
            if flow.twin is not None and id(flow.twin) in gone:
                flow.twin = None
        self.timers.discard(lambda key: key[0] is session or id(key[0]) in gone)
        self._grants.share(self.flows.values())

    # --- datagrams in ----------------------------------------------------------------

    def receive(self, batch: Batch, now: float) -> None:
        """Take in all datagrams of one receive call. Those outside groups of data, beyond
        MOST_STRAYS, wait in `inbox` for `handle_timeout`, which is due then."""
        self._demultiplexer.receive(batch, now)

    def flow_of(self, token: int) -> Flow | None:
        """The flow whose peer sends with `token`."""
        return self._demultiplexer.by_token.get(token)

    def check(self, header: Header, data: bytes) -> None:
        """Raises: MalformedDatagram where the checksum does not match."""
        self._demultiplexer.check(header, data)

    # --- time ------------------------------------------------------------------------

    def next_timeout(self) -> float | None:
        """When `handle_timeout` is due, absolute."""
        return -math.inf if self.inbox else self.timers.next_timeout()

    def pause(self, now: float) -> float:
        """Seconds for which data may wait in io's sockets, so that several come per wake-up."""
        if self._agenda.short or not self._agenda.expecting:
            return 0.0
        return self._grants.arriving.pause(now)

    def handle_timeout(self, now: float) -> None:
        """Handle datagrams that wait, and run timers that are due."""
        self._demultiplexer.work_off(now)
        due = self.timers.next_timeout()
        if unheard := self.own_time.wake(due, now):
            for session in self.sessions.values():
                session.detector.excuse(unheard, now)
        if due is not None and due <= now:
            for key in self.timers.pop_due(now):
                self._expire(key, now)

    def _expire(self, key: Any, now: float) -> None:
        owner, timer, subject = key
        flow = owner if isinstance(owner, Flow) else None
        if flow:
            flow.touch()
            flow.outgoing.held = False
        try:
            owner.handle_timer(timer, subject, now)
        except Exception as exc:  # see `fault`
            session = owner if isinstance(owner, Session) else getattr(flow, "session", None)
            self.fault(session.number if session else 0, exc)

    # --- within this process -------------------------------------------------------------

    def exchange(self, now: float) -> None:
        """Pass data and control between ranks of this process, until nothing moves any more or
        HERE_TURN bytes have moved: then there is `more_here`. Call it before `transmit`: it may
        release data for other hosts."""
        self._local.run(now)

    @property
    def more_here(self) -> bool:
        """Whether the last `exchange` stopped after HERE_TURN bytes."""
        return self._local.more

    # --- datagrams out -----------------------------------------------------------------

    def transmit(self, now: float) -> Iterator[Transmit]:
        """Batches to send now, up to a turn."""
        flows = [self.flows[index] for index in self._agenda.sending]
        yield from self.scheduler.batches(flows, now, self._batch)
        if self.scheduler.paced and self._agenda.sending:
            at = self.scheduler.resumes_at(self.segment_size, now)
            if at > now:
                self.timers.set((self, Timer.PACE, None), at)

    def on_room(self, path: int) -> None:
        """The socket of a path that was `full` has room again."""
        self.full.discard(path)
        for index in self._agenda.sending:
            self.flows[index].outgoing.held = False

    def _batch(self, flow: Flow, now: float, allowance: int) -> Transmit | None:
        try:
            batch = flow.transmit(now, allowance)
        except Exception as exc:  # see `fault`
            self.fault(flow.session.number, exc)
            return None
        if self.trace.on and batch is not None:
            self._note_sent(flow, batch)
        return batch

    def _note_sent(self, flow: Flow, batch: Transmit) -> None:
        first = batch.first
        self.trace.note(
            "sent",
            flow.session.number,
            (*stream_id(first.stream, flow.rank), first.operation),
            flow.rank,
            first.transfer,
            batch.path,
            int(batch.tags[0]) // DROP_PRECEDENCES,
            len(batch.segments),
            first.round,
        )

    def handle_timer(self, timer: Timer, subject: Any, now: float) -> None:
        """The pacer lets datagrams out again: `transmit` follows every timer, and sends them."""

    @property
    def unanswered(self) -> set[int]:
        """Flows, by index, whose READYs with data get no answer. Io clears it."""
        return self._agenda.unanswered

    def final_controls(self, number: int, now: float) -> list[Control]:
        """Control datagrams that the peers of a session still wait for, before it closes."""
        out: list[Control] = []
        for flow in self.sessions[number].flows.values():
            flow.answer(now)
            out += self._flush(flow, now)
        return out

    def departures(self, now: float) -> tuple[list[Control], Iterator[Transmit]]:
        """All that is to be sent now: control, with which small data may travel, and other data."""
        batches, first = self.transmit(now), list[Transmit]()
        small = defaultdict[int, list[Transmit]](list)  # by flow
        for batch in islice(batches, MOST_SMALL):
            first.append(batch)
            if len(batch.segments) > 1:
                break
            small[batch.peer].append(batch)
        out, joined = list[Control](), set[int]()
        self._touched.sort()
        if answered := [f for f in self._touched.there.values() if f.outbox.answers(now)]:
            self._grants.renew(answered, self.flows.values(), len(self._agenda.expecting))
        for flow in self._touched.there.values():
            controls = self._flush(flow, now)
            for each in controls:
                self.effort[_NAMES[each.data[KIND]]] += 1
            to = flow.paths, flow.token_out, flow.segment_size
            bundles, taken = bundled(controls, small.get(flow.index, ()), *to)
            self.effort["bundled"] += len(controls) + len(taken) - len(bundles)
            out += bundles
            joined.update(map(id, taken))
        self._touched.there.clear()
        self.effort["data_out"] += len(joined)
        return out, chain((batch for batch in first if id(batch) not in joined), batches)

    def _flush(self, flow: Flow, now: float) -> list[Control]:
        try:
            return flow.flush(now)
        except Exception as exc:  # see `fault`
            self.fault(flow.session.number, exc)
            return []
