"""One rank of one job: its flows, its operations, and the submissions of its peers.

Rendezvous before data: an operation's data flow to a peer only after that peer's READY, so no data
arrive without a place, and ranks that disagree get an error with their names.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from dlcpd.contract.errors import (
    NOBODY,
    DeadlineExceeded,
    DlcpError,
    Peer,
    RanksDisagree,
    ReplicaDivergence,
    TooMany,
    made,
)
from dlcpd.core.paths.health import PathState
from dlcpd.core.session.departed_peers import DepartedPeers
from dlcpd.core.session.digests import Digest, Digester
from dlcpd.core.session.events import Concluded, PathNews, PeerNews, Stats
from dlcpd.core.session.final_digests import FinalDigests, answer
from dlcpd.core.session.flow import Flow
from dlcpd.core.session.liveness import Liveness
from dlcpd.core.session.mailbox import ANY, Announced, Mailbox, Wanted
from dlcpd.core.session.operation import Operation
from dlcpd.core.session.outcomes import Outcomes
from dlcpd.core.session.ready_repeat import PendingReady, ReadyRepeater
from dlcpd.core.session.stream import Stream, Streams
from dlcpd.core.session.stream_ids import (
    EVERYBODY,
    MESSAGES,
    OperationId,
    is_known,
    messages,
    stream_id,
)
from dlcpd.core.session.suspicions import Suspicions
from dlcpd.core.timers import Timer, TimerTable
from dlcpd.core.trace import Trace
from dlcpd.core.transfer.incoming import Incoming
from dlcpd.core.transfer.sender import TransferSender
from dlcpd.core.wire import control
from dlcpd.core.wire.bitmap import Segments
from dlcpd.core.wire.control import Ready
from dlcpd.core.wire.header import Flag, Header, Key

MAX_OPEN: Final = 1024  # operations in flight of one session
LATE: Final = int(Flag.LATE)


@dataclass(slots=True, eq=False)
class Session:
    """Implements what flows (`FlowOwner`) and operations need. Time comes in with every call."""

    number: int
    rank: int
    world_size: int
    timers: TimerTable
    counters: Counter[str]
    peer_timeout: float = 30.0  # seconds of silence after which a peer is lost
    suspect_after: float = 1.0  # seconds of silence that are reported
    host: str = ""  # name of this host; that of a flow is its peer's
    digester: Digester = field(default_factory=Digester)  # of results, to compare replicas
    flows: dict[int, Flow] = field(default_factory=dict)
    operations: dict[OperationId, Operation] = field(default_factory=dict)
    streams: Streams = field(default_factory=Streams)
    mailbox: Mailbox[Operation] = field(default_factory=Mailbox)
    trace: Trace = field(default_factory=Trace)  # of the engine
    departures: DepartedPeers = field(default_factory=DepartedPeers)  # of peers
    outcomes: Outcomes = field(init=False)
    liveness: Liveness = field(init=False)
    _repeats: ReadyRepeater = field(init=False)
    _suspicions: Suspicions = field(init=False)
    _final: FinalDigests = field(default_factory=FinalDigests)

    def __post_init__(self) -> None:
        self.outcomes = Outcomes(self.number)
        self.liveness = Liveness(self.peer_timeout, self.suspect_after)
        self._suspicions = Suspicions(self.number)
        self._repeats = ReadyRepeater(self, self.timers)

    # --- from the client ----------------------------------------------------------

    def submit(self, operation: Operation, group: int, now: float) -> None:
        """Begin the next collective of a group.

        Raises: the error that broke the session; TooMany. Nothing changed then.
        """
        self._begin_next(operation, self.streams.open_own(group, EVERYBODY), now)

    def submit_send(self, operation: Operation, group: int, rank: int, now: float) -> None:
        """Offer a message to `rank`. Raises as `submit`."""
        stream = self.streams.open_own(messages(group, self.rank, rank), rank)
        self._begin_next(operation, stream, now)

    def submit_receive(
        self, operation: Operation, group: int, rank: int, tag: int, now: float
    ) -> None:
        """Take the next message with a tag from `rank` or ANY. Raises as `submit`."""
        self._check_room()
        wanted = Wanted(group, rank, tag, operation)
        message = self.mailbox.on_receiver(wanted)
        if message is not None:
            self._receive(operation, message, now)
            return
        self.timers.set((self, Timer.DEADLINE, operation), operation.deadline)
        for flow in self.flows.values():
            if rank in (ANY, flow.rank):
                self._watch(flow, now)
        self._fail_hopeless_receivers(now)

    def refuse(self, ticket: int, group: int, members: Iterable[int], error: DlcpError) -> None:
        """The next collective of a group cannot begin here. It takes its number nevertheless,
        because the peers count it; its failure is reported like any other."""
        stream = self.streams.open(group, EVERYBODY)
        number = stream.next_number()
        stream.begin(number)
        others = [rank for rank in members if rank != self.rank]
        for rank in others:
            stream.take(rank, number)
            self.flows[rank].forget(group, number)
        stream.fail(number)
        self.outcomes.refused(ticket, error, group, number, tuple(others))

    def _check_room(self) -> None:
        self.outcomes.raise_if_broken()
        if len(self.operations) + len(self.mailbox.receivers) >= MAX_OPEN:
            raise TooMany(f"{MAX_OPEN} operations in flight; wait for some before submitting more")

    def _begin_next(self, operation: Operation, stream: Stream, now: float) -> None:
        self._check_room()
        self._begin(operation, stream, stream.next_number(), now)

    def _begin(self, operation: Operation, stream: Stream, number: int, now: float) -> None:
        stream.begin(number)
        operation.id = id_ = (stream.wire, stream.peer, number)
        self.operations[id_] = operation
        self.timers.set((self, Timer.DEADLINE, operation), operation.deadline)
        operation.start(self, now)
        flows = [self.flows[rank] for rank in operation.peers]
        for flow in flows:  # READY to all of them, before a failure, so that no peer waits
            flow.look_after_paths(now)
            late = flow.arrivals.early.was_cut((stream.wire, number))
            ready = operation.ready_for(flow.rank)
            if flow.twin is None:
                flow.arrivals.expect(stream.wire, number, ready.incoming)
            told = PendingReady(ready, *stream.digests.next_for(flow.rank), late)
            if not self.departures.is_over(flow.rank):
                self._repeats.send(flow, id_, told, now)
                self._watch(flow, now)
        if (error := stream.aborted_ahead(number)) is not None:
            self.fail(operation, error)
        for flow in flows:
            theirs = stream.take(flow.rank, number)
            if theirs is not None and id_ in self.operations:
                self._match(flow, operation, theirs, now, late=False)
        for rank in [r for r, early in stream.announced.items() if number in early]:
            if id_ in self.operations:
                self._unexpected(self.flows[rank], operation)
        if self.departures:
            self._ask_departed(operation, now)

    def _receive(self, operation: Operation, message: Announced, now: float) -> None:
        """A receiver and its message were matched."""
        operation.meet(message.rank)
        stream = self.streams.open(message.stream, message.rank)
        self._begin(operation, stream, message.number, now)

    def _match(
        self, flow: Flow, operation: Operation, theirs: Ready, now: float, *, late: bool
    ) -> None:
        ours = operation.ready_for(flow.rank)
        if not ours.agrees_with(theirs):
            text = (
                f"{operation.label}: rank {flow.rank} on {flow.host} submitted "
                f"{theirs.describe()}; rank {self.rank} here submitted {ours.describe()}. "
                f"All ranks must submit the same operations of a group in the same order"
            )
            self.fail(operation, RanksDisagree(text))
            return
        operation.on_peer_ready(flow.rank, theirs, now, late=late)
        flow.arrivals.replay(operation.id[0], operation.id[2], now)

    @property
    def broken(self) -> tuple[str, str] | None:
        """Code and text of what ended the session; None while operations can be submitted."""
        return self.outcomes.broken

    @property
    def begun(self) -> int:
        """Operations that began here, of all groups."""
        return sum(stream.begun for stream in self.streams.values())

    # --- from the network -----------------------------------------------------------

    def on_ready(self, flow: Flow, header: Header, body: bytes, now: float) -> None:
        """A peer's READY. Raises MalformedDatagram."""
        wire, number = header.stream, header.operation
        ready = control.unpack_ready_untrusted(body)
        stream = self.streams.of_peer(wire, flow.rank)
        flow.on_window(ready.window, header.sent_at, now)
        if not stream.digests.check(flow.rank, ready.checked, ready.digest):
            self._diverged(flow.rank, stream, ready.checked)
            return
        # it has the result, and so this rank's part of it
        flow.outgoing.acknowledge_all(wire, ready.checked, now)
        operation = self.operations.get((wire, stream.peer, number))
        if operation is not None:
            self._on_ready_of_open(flow, operation, header, ready, now)
            return
        if stream.near(number) and stream.room(flow.rank, number):
            self._on_announcement(flow, stream, number, ready, now)
        elif not stream.has_begun(number):
            return  # no room to remember it: without an answer it will be repeated
        flow.outbox.heard_ready.add((wire, number))

    def _on_ready_of_open(
        self, flow: Flow, operation: Operation, header: Header, ready: Ready, now: float
    ) -> None:
        if flow.rank not in operation.peers:
            self._unexpected(flow, operation)
        elif flow.rank not in operation.ready_ranks:
            self._match(flow, operation, ready, now, late=bool(header.flags & LATE))
        elif header.round:  # repeated: the peer does not know yet that its READY arrived
            flow.outbox.heard_ready.add((header.stream, header.operation))

    def _unexpected(self, flow: Flow, operation: Operation) -> None:
        text = (
            f"{operation.label}: rank {flow.rank} on {flow.host} takes part in it, which rank "
            f"{self.rank} here does not expect: the ranks of a group must be the same on all of "
            f"them, and so must root and schedule"
        )
        self.fail(operation, RanksDisagree(text))

    def _on_announcement(
        self, flow: Flow, stream: Stream, number: int, ready: Ready, now: float
    ) -> None:
        """A peer is ahead of this rank, or offers a message."""
        stream.announce(flow.rank, number, ready)
        flow.arrivals.early.announce((stream.wire, number))
        self._offer(stream, now)

    def _offer(self, stream: Stream, now: float) -> None:
        """Match messages whose turn it is with receivers."""
        if not stream.leads_to(self.rank):
            return
        for number, ready in stream.offers():
            message = Announced(stream.peer, stream.wire, number, stream.group, ready.tag)
            receiver = self.mailbox.on_message(message)
            if receiver is not None:
                self._receive(receiver, message, now)
        self._fail_hopeless_receivers(now)

    def on_digests(self, flow: Flow, header: Header, body: bytes, now: float) -> None:
        """A peer sends its digests, and may ask for those of this rank. Raises
        MalformedDatagram."""
        rows = control.unpack_digests_untrusted(body)
        stream = self.streams.of_peer(header.stream, flow.rank)
        for number, known, digest in rows:
            if not known:
                stream.digests.forgo(flow.rank, number)
            elif not stream.digests.check(flow.rank, number, digest):
                self._diverged(flow.rank, stream, number)
                break
        if header.flags & Flag.ASK:
            answer(flow, stream, rows, self._unfinished(stream))
        if self._final.begun:
            self._conclude_if_equal()

    def _unfinished(self, stream: Stream) -> set[int]:
        """Operations of a stream that have no result yet."""
        here = (stream.wire, stream.peer)
        return {id_[2] for id_, op in self.operations.items() if id_[:2] == here and not op.done}

    def on_ready_ack(self, flow: Flow, header: Header) -> None:
        """The peer has this rank's READY."""
        self._knows_us_ready(flow.rank, self._id_of(header, flow.rank))

    def _id_of(self, name: Header | Key, rank: int) -> OperationId:
        wire, peer = stream_id(name.stream, rank)
        return wire, peer, name.operation

    def _knows_us_ready(self, rank: int, operation: OperationId) -> None:
        self._repeats.acked(rank, operation)
        if (known := self.operations.get(operation)) is not None:
            known.on_known(rank)

    # --- for flows (FlowOwner) -------------------------------------------------------------

    def settle_implied(self, rank: int, key: Key, now: float) -> None:
        operation = self.operations.get(self._id_of(key, rank))
        if operation is not None:
            operation.settle_implied(rank, key, now)

    def open_incoming(self, rank: int, key: Key) -> Incoming | str:
        operation = self.operations.get(self._id_of(key, rank))
        if operation is not None:
            return operation.open_incoming(rank, key)
        stream = self.streams.get(stream_id(key.stream, rank))
        return "early" if stream is None else stream.refusal(key.operation)

    def on_received(self, incoming: Incoming, now: float) -> None:
        operation = self.operations.get(self._id_of(incoming.key, incoming.rank))
        if operation is not None:
            operation.on_received(incoming, now)

    def on_acknowledged(self, rank: int, sender: TransferSender, now: float) -> None:
        id_ = self._id_of(sender.key, rank)
        self._knows_us_ready(rank, id_)  # it took this rank's data: it has its READY
        operation = self.operations.get(id_)
        if operation is not None:
            operation.on_acknowledged(rank, sender, now)

    def on_waived(self, rank: int, sender: TransferSender, missing: Segments) -> Segments:
        operation = self.operations.get(self._id_of(sender.key, rank))
        if operation is None:
            return np.empty(0, np.intp)
        return operation.on_waived(rank, sender, missing)

    def on_path(self, rank: int, path: int, state: PathState) -> None:
        self.counters[state.value] += 1
        loss = self.flows[rank].paths.health[path].loss
        self.outcomes.events.append(PathNews(self.number, rank, path, state, loss))

    def count(self, reason: str, datagrams: int = 1) -> None:
        self.counters[reason] += datagrams

    def set_timer(self, key: Any, at: float) -> None:
        self.timers.set(key, at)

    def cancel_timer(self, key: Any) -> None:
        self.timers.cancel(key)

    # --- from operations ---------------------------------------------------------------

    def knows(self, rank: int, operation: Operation) -> bool:
        """Whether `rank` has this rank's READY of an operation."""
        return not self._repeats.is_pending(rank, operation.id)

    def done(
        self,
        operation: Operation,
        now: float,
        *,
        stats: Stats,
        digest: Digest | None,
        source: int = -1,
    ) -> None:
        """The result of an operation is in place."""
        self.outcomes.done(operation, stats, source, now)
        if digest is not None:
            wire, peer, number = operation.id
            stream = self.streams[wire, peer]
            rank = stream.digests.add(number, digest, operation.peers)
            if rank is not None:
                self._diverged(rank, stream, number)

    def released(self, operation: Operation) -> None:
        """No peer needs the memory of a done operation."""
        self.outcomes.released(operation)

    def over(self, operation: Operation) -> None:
        """No peer needs anything of a done operation any more."""
        self._close(operation)
        self._tell_departure()

    def _close(self, operation: Operation) -> None:
        self.operations.pop(operation.id, None)
        operation.closed()
        self.timers.cancel((self, Timer.DEADLINE, operation))
        wire, _, number = operation.id
        for rank in operation.peers:
            self._repeats.acked(rank, operation.id)
            self.flows[rank].arrivals.expect_nothing(wire, number)

    # --- failure ------------------------------------------------------------------------

    def abort(self, rank: int, wire: int, number: int, error: DlcpError, now: float) -> None:
        """`rank` aborted an operation. One that has not begun here fails as soon as it does."""
        id_ = (*stream_id(wire, rank), number)
        if (operation := self.operations.get(id_)) is not None:
            self.fail(operation, error)
        elif is_known(wire) and not self.streams.full:
            stream = self.streams.open(*id_[:2])
            if wire & MESSAGES:
                self._withdraw(stream, rank, number, now)
            elif stream.near(number):
                stream.abort_ahead(number, error)

    def _withdraw(self, stream: Stream, rank: int, number: int, now: float) -> None:
        """A message that was not received yet never will be. Its number is used up: a hole in the
        sequence would keep the messages far behind it out permanently."""
        self.mailbox.withdraw(rank, stream.wire, number)
        if stream.leads_to(self.rank) and stream.near(number):
            stream.take(rank, number)
            stream.begin(number)
            stream.fail(number)
            self.flows[rank].forget(stream.wire, number)
            self._offer(stream, now)

    def fail(self, operation: Operation, error: DlcpError) -> None:
        """End an open operation without a result. One that is done is released: a peer that lacks
        parts of it reports a failure of its own."""
        wire, peer, number = operation.id
        for rank in operation.peers:
            self.flows[rank].forget(wire, number)
        if operation.done:
            if not operation.released:
                self.released(operation)
            self.over(operation)
            return
        error = _awaited(error, operation)
        operation.on_failed()
        self._close(operation)
        self.streams[wire, peer].fail(number)
        if self.trace.on:
            self.trace.note("failed", self.number, operation.id, error.code)
        # Ranks may disagree on the members of the group: then all ranks of the session are told,
        # since some that this rank does not expect may wait for it.
        apart = isinstance(error, RanksDisagree) and not wire & MESSAGES
        self.outcomes.failed(operation, error, self.flows if apart else operation.peers)
        self._tell_departure()

    def fail_group(self, group: int, error: DlcpError) -> None:
        """Fail the open operations of one group; other groups go on. Operations of this group that
        are done here go on too, since peers may still need parts of them."""
        members = [op for id_, op in self.operations.items() if id_[0] & ~MESSAGES == group]
        for operation in [op for op in members if not op.done]:
            self.fail(operation, error)
        for wanted in [w for w in self.mailbox.receivers if w.group == group]:
            self._fail_receiver(wanted.receiver, error)

    def _fail_receiver(self, operation: Operation, error: DlcpError) -> None:
        """Fail a receiver that met no message."""
        self.mailbox.cancel(operation)
        operation.closed()
        self.timers.cancel((self, Timer.DEADLINE, operation))
        self.outcomes.refused(operation.ticket, _awaited(error, operation))

    def fail_all(self, rank: int, error: DlcpError) -> None:
        """Break the session: every operation without a result fails, none can be submitted.

        After a departure, operations that went on without the peer that left end here too, unless
        the error is that peer's silence. Results that are in place here are still delivered to the
        other peers.
        """
        if self.outcomes.departed(rank) or self.departures.is_over(rank):
            return
        self._final.leave_out(rank)
        first = self.outcomes.breaks(error)
        self._fail_open(error)
        if first:
            self.outcomes.tell_broken(rank, error)

    def _fail_open(self, error: DlcpError) -> None:
        """Fail all operations without a result here. Done ones go on, since peers may need
        parts."""
        for operation in [op for op in self.operations.values() if not op.done]:
            self.fail(operation, error)
        for wanted in list(self.mailbox.receivers):
            self._fail_receiver(wanted.receiver, error)

    def end(self, error: DlcpError) -> None:
        """The session closes: nothing more is delivered to any peer."""
        self.fail_all(self.rank, error)
        for operation in list(self.operations.values()):
            self.fail(operation, error)

    def peer(self, rank: int) -> Peer:
        """A rank as errors name it; an empty `Peer` if it is none of the peers."""
        flow = self.flows.get(rank)
        return Peer(rank, flow.host, flow.address) if flow else NOBODY

    # --- departures ---------------------------------------------------------------------

    def leave(self, error: DlcpError) -> None:
        """The client has gone. Operations without a result fail; peers can fetch their parts of the
        others as long as the session stays open."""
        self.outcomes.breaks(error)
        self._fail_open(error)

    def begun_with(self, rank: int) -> list[tuple[int, int]]:
        """By stream that `rank` may share: the newest operation such that all up to it began."""
        return [
            (wire, stream.begun)
            for (wire, peer), stream in self.streams.items()
            if stream.begun and peer in (EVERYBODY, rank)
        ]

    def peer_left(
        self,
        rank: int,
        begun: Iterable[tuple[int, int]],
        error: DlcpError,
        now: float,
        *,
        last: bool = True,
    ) -> None:
        """`rank` submits nothing after the operations that `begun` names, by stream; it still
        delivers its part of these. An operation that needs more of it fails. Without `last`, more
        streams will be named."""
        self.departures.add(rank, begun, str(error), now, last=last)
        if not last:
            return
        for id_, operation in list(self.operations.items()):
            if rank in operation.peers and not self.departures.promised(rank, id_[0], id_[2]):
                self._let_go(rank, operation, self.departures.error(self.peer(rank), now), now)
        self._fail_hopeless_receivers(now)

    def peer_gone(self, rank: int, error: DlcpError, now: float) -> None:
        """The session of `rank` is over, as its daemon reports. Operations that still need it fail;
        the others go on.

        If the rank had not announced that it leaves, or no other peer is left, the session is
        broken.
        """
        self.departures.end(rank)
        if rank in self.departures:
            error = self.departures.over_error(self.peer(rank))
        if self.outcomes.broken is None and not self._goes_on_without(rank):
            self.outcomes.departs(rank, error)
            for wanted in list(self.mailbox.receivers):
                self._fail_receiver(wanted.receiver, error)
        self._final.leave_out(rank)
        for operation in [op for op in self.operations.values() if rank in op.peers]:
            self._let_go(rank, operation, error, now)
        self._fail_hopeless_receivers(now)
        self._tell_departure()

    def _goes_on_without(self, rank: int) -> bool:
        """Whether other peers are left, or promised operations have yet to begin."""
        if rank not in self.departures:
            return False
        remain = not all(map(self.departures.is_over, self.flows))
        begun = {wire: stream.begun for (wire, _), stream in self.streams.items()}
        return remain or self.departures.promise_more(begun)

    def _let_go(self, rank: int, operation: Operation, error: DlcpError, now: float) -> None:
        """An operation gets nothing more from `rank`: it goes on without it, or fails."""
        promised = self.departures.promised(rank, operation.id[0], operation.id[2])
        if operation.done:
            self._release(rank, operation, now)
        elif operation.owed_by(rank) if promised else operation.needs(rank):
            self._lose(rank, operation, error)
        else:
            operation.ready_ranks.add(rank)
            self._release(rank, operation, now)

    def _lose(self, rank: int, operation: Operation, error: DlcpError) -> None:
        """An operation needs a rank that has left: it fails, and no other can begin."""
        if self.outcomes.broken is None:
            self.outcomes.departs(rank, error)
        self.fail(operation, error)

    def _release(self, rank: int, operation: Operation, now: float) -> None:
        """Nothing of an operation has to reach `rank` any more."""
        wire, _, number = operation.id
        self._repeats.acked(rank, operation.id)
        self.flows[rank].outgoing.acknowledge_all(wire, number, now)
        operation.on_left(rank, now)

    def _ask_departed(self, operation: Operation, now: float) -> None:
        """An operation has begun here: peers that have left take part in it, or it fails."""
        wire, _, number = operation.id
        for rank in [rank for rank in operation.peers if rank in self.departures]:
            if operation.id not in self.operations:
                return
            if self.departures.is_over(rank) or not self.departures.promised(rank, wire, number):
                self._let_go(rank, operation, self.departures.error(self.peer(rank), now), now)

    def _fail_hopeless_receivers(self, now: float) -> None:
        """Fail receivers to which no peer will send any more."""
        if not self.departures:
            return
        for wanted in list(self.mailbox.receivers):
            ranks = list(self.flows) if wanted.rank == ANY else [wanted.rank]
            if all(self._sends_no_more(rank, wanted.group) for rank in ranks):
                error = self.departures.error(self.peer(ranks[0]), now)
                if self.outcomes.broken is None:
                    self.outcomes.departs(ranks[0], error)
                self._fail_receiver(wanted.receiver, error)
                self._tell_departure()

    def _sends_no_more(self, rank: int, group: int) -> bool:
        """Whether all messages of a peer that has left were offered here."""
        wire = messages(group, rank, self.rank)
        stream = self.streams.get((wire, rank))
        return rank in self.departures and (
            self.departures.is_over(rank)
            or not self.departures.promised(rank, wire, 1 + (stream.offered if stream else 0))
        )

    def _tell_departure(self) -> None:
        if not self.operations:
            self.outcomes.tell_departure()

    def _diverged(self, rank: int, stream: Stream, number: int) -> None:
        text = (
            f"rank {rank} on {self.flows[rank].host} and rank {self.rank} here hold different "
            f"results of {stream.digests.describe(number)}: replicas have diverged. Stop, and "
            f"restart from the last checkpoint"
        )
        self.fail_all(rank, ReplicaDivergence(text))

    # --- the end ----------------------------------------------------------------------------

    def conclude(self, now: float, until: float) -> None:
        """The owner is about to leave: compare the remaining results, and report `Concluded`, at
        `until` at the latest."""
        if not self._final.until:
            self._final.until = until
            self._ask_for_digests(now)

    def _ask_for_digests(self, now: float) -> None:
        flows, streams = list(self.flows.values()), list(self.streams.values())
        lacking = self._final.ask(streams, flows)
        if not lacking or now >= self._final.until:
            self._concluded(lacking)
            return
        at = min(now + self._final.wait(flows), self._final.until)
        self.timers.set((self, Timer.DIGESTS, None), at)

    def _conclude_if_equal(self) -> None:
        streams = list(self.streams.values())
        if not any(self._final.lacks(streams, flow) for flow in self.flows.values()):
            self._concluded(0)

    def _concluded(self, unconfirmed: int) -> None:
        self._final.over = True
        self.timers.cancel((self, Timer.DIGESTS, None))
        self.outcomes.events.append(Concluded(self.number, unconfirmed))

    # --- time -----------------------------------------------------------------------------

    def handle_timer(self, timer: Timer, subject: Any, now: float) -> None:
        """A timer of this session expired."""
        match timer:
            case Timer.DEADLINE:
                self._on_deadline(subject)
            case Timer.READY:
                self._repeats.repeat(self.flows[subject], now)
            case Timer.ALIVE:
                self._check_alive(self.flows[subject], now)
            case Timer.DIGESTS:
                self._ask_for_digests(now)

    def _on_deadline(self, operation: Operation) -> None:
        text = (
            f"{operation.label} missed its deadline; waiting for {operation.waiting_for()}. "
            f"Where ranks may be that far apart, allow more by deadline= of the policy"
        )
        if any(wanted.receiver is operation for wanted in self.mailbox.receivers):
            self._fail_receiver(operation, DeadlineExceeded(text))
        else:
            self.fail(operation, DeadlineExceeded(text))

    def _watch(self, flow: Flow, now: float) -> None:
        key = (self, Timer.ALIVE, flow.rank)
        if not self.timers.pending(key):
            flow.heard(now)
            self.timers.set(key, now + self.liveness.interval)

    def _check_alive(self, flow: Flow, now: float) -> None:
        """Check a peer for as long as an operation here waits for it."""
        waiting = self._waiting_for(flow)
        if not waiting:
            self._tell(self._suspicions.end(flow, now))
            return
        if self.liveness.is_lost(flow, now):
            awaited = [operation.waiting_for() for operation in waiting]
            self.fail_all(flow.rank, self.liveness.loss(flow, awaited, now))
            for operation in [op for op in self.operations.values() if flow.rank in op.peers]:
                self._release(flow.rank, operation, now)
            return
        self._tell(self._suspicions.check(flow, self.liveness, now))
        self.timers.set((self, Timer.ALIVE, flow.rank), self.liveness.check(flow, now))

    def _waiting_for(self, flow: Flow) -> list[Operation]:
        if self.departures.is_over(flow.rank):
            return []
        waiting = [op for op in self.operations.values() if flow.rank in op.peers]
        wanted = [w.receiver for w in self.mailbox.receivers if w.rank in (ANY, flow.rank)]
        return waiting + wanted

    def _tell(self, news: PeerNews | None) -> None:
        if news is not None:
            self.outcomes.events.append(news)

    def doubt(self, rank: int, sign: str, now: float) -> None:
        """There is a sign that a peer's process has ended: ping it at once."""
        flow = self.flows.get(rank)
        if flow is None or not self.timers.pending(key := (self, Timer.ALIVE, rank)):
            return  # no operation waits for it
        if flow.doubt(sign, now):
            self.timers.set(key, now)

    def excuse(self, seconds: float, now: float) -> None:
        """This process could not listen for `seconds`."""
        for flow in self.flows.values():
            flow.excuse(seconds, now)


def _awaited(error: DlcpError, operation: Operation) -> DlcpError:
    """`error` with what the operation waits for, if it is about a peer and does not name it."""
    if error.peer.rank < 0 or error.peer.awaiting:
        return error
    return made(type(error), str(error), error.peer._replace(awaiting=operation.waiting_for()))
