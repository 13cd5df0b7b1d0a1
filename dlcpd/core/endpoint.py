"""The engine's pure half: demultiplexes datagrams to flows, runs timers, yields batches.

Drive it with `receive`, `handle_timeout` and `submit`; after each, drain `transmit`,
`controls` and the sessions' events, and wake up again by `next_timeout`.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dlcpd.contract.errors import MalformedDatagram
from dlcpd.contract.traffic import DROP_PRECEDENCES
from dlcpd.core.inbox import Inbox
from dlcpd.core.own_time import OwnTime
from dlcpd.core.paths.health import ALARM_LOSS
from dlcpd.core.paths.incast import ArrivalRate
from dlcpd.core.paths.paths import Paths
from dlcpd.core.room import Room
from dlcpd.core.session.agenda import Agenda
from dlcpd.core.session.digests import Digester, HashRows
from dlcpd.core.session.flow import Flow
from dlcpd.core.session.session import Session
from dlcpd.core.session.stream_ids import stream_id
from dlcpd.core.timers import Timer, TimerTable
from dlcpd.core.trace import Trace
from dlcpd.core.transfer.early import MAX_SESSION
from dlcpd.core.transfer.incoming import NoPlacement, Placement
from dlcpd.core.turns import Turns
from dlcpd.core.wire import control, nh
from dlcpd.core.wire.checksum import Checksum, Keyring
from dlcpd.core.wire.datagram import Batch, Control, Group, Transmit
from dlcpd.core.wire.header import HEADER_SIZE, Header, Kind
from dlcpd.core.wire.rows import alone
from dlcpd.core.wire.sizes import MAX_SEGMENT

HERE_TURN: Final = 8 << 20  # bytes copied within this process per turn, before other work: some
# milliseconds, with the reductions that follow
MAX_FLOWS: Final = 4096  # of all sessions of an engine
MOST_CONTROL: Final = 256  # control datagrams handled per wake-up; some milliseconds
_READY: Final = bytes([Kind.READY])  # second byte of a datagram


@dataclass(frozen=True, slots=True)
class PeerSpec:
    """One peer of a session, as the control process described it."""

    rank: int
    host: str
    token_in: int  # in datagrams from the peer
    token_out: int  # in datagrams to the peer
    paths: int
    secret_in: bytes = b""  # keys the checksums of the peer's datagrams; empty: it has none


@dataclass(slots=True, eq=False)
class Endpoint:
    """All sessions of one engine."""

    segment_size: int
    grant: int  # bytes that all peers together may have in flight towards this engine
    turns: Turns
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
    flows: dict[int, Flow] = field(default_factory=dict)  # by index
    own_time: OwnTime = field(default_factory=OwnTime)
    inbox: Inbox = field(default_factory=Inbox)  # control datagrams beyond MOST_CONTROL
    _handled: int = 0  # control datagrams, since `handle_timeout` was called
    _arriving: ArrivalRate = field(default_factory=ArrivalRate)
    _by_token: dict[int, Flow] = field(default_factory=dict)
    _agenda: Agenda = field(default_factory=Agenda)
    _here: dict[int, Flow] = field(default_factory=dict)  # touched flows whose peers are in this
    # process too
    _there: dict[int, Flow] = field(default_factory=dict)  # touched flows of other peers
    _faults: list[tuple[int, Exception]] = field(default_factory=list)
    full: set[int] = field(default_factory=set)  # paths whose sockets are full now
    more_here: bool = False  # the last `exchange` stopped after HERE_TURN bytes
    _next_index: int = 0
    _turns_here: int = 0  # of `exchange`

    # --- bugs ---------------------------------------------------------------------

    def fault(self, number: int, bug: Exception) -> None:
        """Record a bug in the work for session `number`; 0: for no session in particular.

        Work for one session catches every exception: the caller closes that session, and the others
        are not affected.
        """
        self._faults.append((number, bug))

    def take_faults(self) -> list[tuple[int, Exception]]:
        """(session, exception) of the faults since the last call; session 0: of none in
        particular."""
        faults, self._faults = self._faults, []
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
            self._by_token[peer.token_in] = flow
            if peer.secret_in:
                self.keys.add(peer.token_in, Checksum(peer.secret_in))
            self.flows[flow.index] = flow
            twin = self._by_token.get(peer.token_out)
            if twin is not None:  # both ranks are in this process: their data stay in memory
                flow.twin, twin.twin = twin, flow
        self.sessions[number] = session
        self._share_grant()
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
            ),
        )

    def flow_of(self, token: int) -> Flow | None:
        """The flow whose peer sends with `token`."""
        return self._by_token.get(token)

    def close_session(self, number: int) -> None:
        """Forget a session; its tokens are unknown from now on."""
        session = self.sessions.pop(number)
        self.turns.forget(number)
        for flow in session.flows.values():
            flow.arrivals.close()
            self.keys.remove(flow.token_in)
            self._agenda.forget(flow.index)
            self._here.pop(flow.index, None)
            self._there.pop(flow.index, None)
        gone = {id(flow) for flow in session.flows.values()}
        self._by_token = {t: f for t, f in self._by_token.items() if id(f) not in gone}
        self.flows = {i: f for i, f in self.flows.items() if id(f) not in gone}
        for flow in self.flows.values():
            if flow.twin is not None and id(flow.twin) in gone:
                flow.twin = None
        self.timers.discard(lambda key: key[0] is session or id(key[0]) in gone)
        self._share_grant()

    def _share_grant(self) -> None:
        """Set the initial grant of each sender, as if all of them began at once."""
        for flow in self.flows.values():
            self._update_grant(flow, len(self.flows))

    def _update_grant(self, flow: Flow, senders: int) -> None:
        """Set the bytes that one peer may have in flight: an equal share of the receive buffers, at
        most `max_window`, and at most its part, among `senders`, of what arrives per round trip."""
        flow.grant = flow.opening = min(self.grant // len(self.flows), self.max_window)
        if self.congestion_control:
            seconds = flow.paths.cover
            flow.grant = min(self._arriving.share(seconds, senders), flow.grant)
            flow.opening = min(self._arriving.share(seconds, len(self.flows)), flow.opening)

    # --- datagrams in ----------------------------------------------------------------

    def receive(self, batch: Batch, now: float) -> None:
        """Take in all datagrams of one receive call.

        READY comes first, since data may have travelled with it; all other control refers to data
        that left before it, and comes last. Control beyond MOST_CONTROL waits in `inbox` for
        `handle_timeout`, which is due then.
        """
        groups = self._groups(batch)
        later = [data for data in batch.strays if data[1:2] != _READY]
        for data in batch.strays:
            if data[1:2] == _READY:
                self._control(data, batch.stray_arrival, now)
        for group in groups:
            self._group(group, now)
        for data in later:
            self._control(data, batch.stray_arrival, now)

    def _groups(self, batch: Batch) -> Sequence[Group]:
        try:
            return batch.groups(self.counters)
        except Exception as exc:  # the datagrams are lost, as on any network
            self.fault(0, exc)
            return ()

    def _group(self, group: Group, now: float) -> None:
        header, count = group.header, group.count
        flow = self._by_token.get(header.token)
        if flow is None:
            self.counters["token"] += count
            return
        self.effort["data_in"] += count
        if group.marked:
            self.counters["ce"] += group.marked
        flow.touch()
        try:
            useful = flow.arrivals.on_data(group, now)
        except Exception as exc:  # see `fault`
            self.fault(flow.session.number, exc)
            return
        if useful:
            flow.heard(now)
            self._arriving.on_bytes(group.size, now)

    def _control(self, data: bytes, arrived_at: float, now: float) -> None:
        try:
            header = Header.unpack_untrusted(data)
            self.check(header, data)
            if header.kind is Kind.DATA:
                self._stray_data(header, data, arrived_at, now)
            elif header.kind is Kind.PING or (not self.inbox and self._handled < MOST_CONTROL):
                self._on_control(header, data, arrived_at, now)
                self._handled += 1
            elif header.token not in self._by_token:
                raise MalformedDatagram("token")
            else:
                self.inbox.put(header, data, arrived_at)
        except MalformedDatagram as exc:
            self.counters[exc.reason] += 1

    def check(self, header: Header, data: bytes) -> None:
        """Raises: MalformedDatagram where the checksum does not match."""
        if not self.keys.is_genuine(header.token, header.checksum, data):
            raise MalformedDatagram("checksum")

    def _on_control(self, header: Header, data: bytes, arrived_at: float, now: float) -> None:
        """Raises: MalformedDatagram."""
        flow = self._by_token.get(header.token)
        if flow is None:
            raise MalformedDatagram("token")
        flow.touch()
        self._control_of(flow, header, control.body_untrusted(data), arrived_at, now)

    def _control_of(
        self, flow: Flow, header: Header, body: bytes, arrived_at: float, now: float
    ) -> None:
        """Raises: MalformedDatagram."""
        flow.outgoing.held = False
        session = self.sessions[flow.session.number]
        try:
            if header.kind is Kind.READY:
                session.rendezvous.on_ready(flow, header, body, now)
            elif header.kind is Kind.READY_ACK:
                session.rendezvous.on_ready_ack(flow, header)
            elif header.kind is Kind.DIGESTS:
                session.replicas.on_digests(flow, header, body)
            else:
                flow.on_control(header, body, arrived_at, now)
        except MalformedDatagram:
            raise
        except Exception as exc:  # see `fault`
            self.fault(flow.session.number, exc)

    def _stray_data(self, header: Header, data: bytes, arrived_at: float, now: float) -> None:
        """Data of a small operation, which the kernel joined with others of its size."""
        if len(data) > HEADER_SIZE + MAX_SEGMENT:
            raise MalformedDatagram("length", f"data of {len(data)} bytes")
        self._group(alone(header, data, arrived_at), now)

    def _work_off(self, now: float) -> None:
        """Handle up to MOST_CONTROL datagrams of `inbox`."""
        self._handled = 0
        while self.inbox and self._handled < MOST_CONTROL:
            self._handled += 1
            header, data, arrived_at = self.inbox.take()
            try:
                self._on_control(header, data, arrived_at, now)
            except MalformedDatagram as exc:
                self.counters[exc.reason] += 1

    # --- time ------------------------------------------------------------------------

    def next_timeout(self) -> float | None:
        """When `handle_timeout` is due, absolute."""
        return -math.inf if self.inbox else self.timers.next_timeout()

    def handle_timeout(self, now: float) -> None:
        """Handle datagrams that wait, and run timers that are due."""
        self._work_off(now)
        due = self.timers.next_timeout()
        if unheard := self.own_time.wake(due, now):
            for session in self.sessions.values():
                session.detector.excuse(unheard, now)
        if due is None or due > now:
            return
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
        HERE_TURN bytes have moved: then there is `more_here`.

        Call it before `transmit`: it may release data for other hosts.
        """
        left, moved = HERE_TURN, True
        self._turns_here += 1
        while moved and left > 0:
            moved = False
            for flow in self._take_here():
                try:
                    size = self._exchange(flow, now, left)
                    moved, left = moved or size > 0, left - size
                except Exception as exc:  # see `fault`; of either side
                    self.fault(flow.session.number, exc)
                    if flow.twin is not None:
                        self.fault(flow.twin.session.number, exc)
        self.more_here = left <= 0

    def _take_here(self) -> list[Flow]:
        """Touched flows to ranks of this process; a different one is first at every wake-up."""
        self._sort_out()
        flows = [self._here[index] for index in sorted(self._here)]
        self._here.clear()
        first = self._turns_here % max(len(flows), 1)
        return flows[first:] + flows[:first]

    def _sort_out(self) -> None:
        """Divide touched flows by where their peers are."""
        for index in self._agenda.touched:
            if (flow := self.flows.get(index)) is not None:
                (self._there if flow.twin is None else self._here)[index] = flow
        self._agenda.touched.clear()

    def _exchange(self, flow: Flow, now: float, most: int) -> int:
        """Returns the bytes that have moved, plus the number of control datagrams."""
        moved = flow.deliver(now, most)
        for datagram in flow.flush(now):
            moved += 1
            self._pass_on(datagram.data, now)
        return moved

    def _pass_on(self, data: bytes, now: float) -> None:
        """A control datagram that never left this process, and has no checksum."""
        try:
            self._on_control(Header.unpack_untrusted(data), data, now, now)
        except MalformedDatagram as exc:
            self.counters[exc.reason] += 1

    # --- datagrams out -----------------------------------------------------------------

    def transmit(self, now: float) -> Iterator[Transmit]:
        """Batches to send now, up to a turn."""
        flows = [self.flows[index] for index in self._agenda.sending]
        yield from self.turns.batches(flows, now, self._batch)
        if self.turns.paced and self._agenda.sending:
            at = self.turns.resumes_at(self.segment_size, now)
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

    def final_controls(self, number: int, now: float) -> list[Control]:
        """Control datagrams that the peers of a session still wait for, before it closes."""
        out: list[Control] = []
        for flow in self.sessions[number].flows.values():
            flow.answer(now)
            out += self._flush(flow, now)
        return out

    def controls(self, now: float) -> list[Control]:
        """Control datagrams to send now."""
        out: list[Control] = []
        self._sort_out()
        for flow in self._there.values():
            if flow.outbox.answers(now):
                self._update_grant(flow, len(self._agenda.expecting))
            out += self._flush(flow, now)
        self._there.clear()
        return out

    def _flush(self, flow: Flow, now: float) -> list[Control]:
        try:
            return flow.flush(now)
        except Exception as exc:  # see `fault`
            self.fault(flow.session.number, exc)
            return []
