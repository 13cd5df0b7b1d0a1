"""Ranks meet before data flow: the READYs of an operation are sent, and those of peers matched.

An operation's data flow to a peer only after that peer's READY, so no data arrive without a place,
and ranks that disagree get an error with their names.

Collectives match by number: all ranks of a group count them alike. Messages match by tag and
source: the sender counts them and announces each with READY, and the receiver takes the number of
the message that it gets. A peer may be ahead of this rank: `Stream` remembers its READYs until the
operation begins here.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dlcpd.contract.errors import DlcpError, RanksDisagree, TooMany
from dlcpd.core.session.departures import Departures
from dlcpd.core.session.failure_detector import FailureDetector
from dlcpd.core.session.failures import Failures
from dlcpd.core.session.flow import Flow
from dlcpd.core.session.mailbox import ANY, Announced, Wanted
from dlcpd.core.session.operation import Operation
from dlcpd.core.session.ready_repeat import PendingReady
from dlcpd.core.session.replica_check import ReplicaCheck
from dlcpd.core.session.state import SessionState
from dlcpd.core.session.stream import Stream
from dlcpd.core.session.stream_ids import (
    EVERYBODY,
    MESSAGES,
    is_known,
    messages,
    operation_id,
    stream_id,
)
from dlcpd.core.wire import control
from dlcpd.core.wire.control import Ready
from dlcpd.core.wire.header import CARRIES, LATE, Header

MAX_OPEN: Final = 1024  # operations in flight of one session
SHORT: Final = 128 << 10  # bytes that peers send in an operation; with fewer, each wake-up counts


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Rendezvous:
    """Begins operations, and matches them with the READYs of the peers."""

    state: SessionState
    failures: Failures
    departures: Departures
    detector: FailureDetector
    replicas: ReplicaCheck

    # --- operations of this rank ------------------------------------------------------------

    def submit(self, operation: Operation, group: int, now: float) -> None:
        """Begin the next collective of a group.

        Raises: the error that broke the session; TooMany. Nothing changed then.
        """
        self._begin_next(operation, self.state.streams.open_own(group, EVERYBODY), now)

    def submit_send(self, operation: Operation, group: int, rank: int, now: float) -> None:
        """Offer a message to `rank`. Raises as `submit`."""
        wire = messages(group, self.state.rank, rank)
        self._begin_next(operation, self.state.streams.open_own(wire, rank), now)

    def submit_receive(
        self, operation: Operation, group: int, rank: int, tag: int, now: float
    ) -> None:
        """Take the next message with a tag from `rank` or ANY. Raises as `submit`."""
        self._check_room()
        message = self.state.mailbox.on_receiver(Wanted(group, rank, tag, operation))
        if message is not None:
            self._receive(operation, message, now)
            return
        self.state.set_deadline(operation)
        for flow in self.state.flows.values():
            if rank in (ANY, flow.rank):
                self.detector.watch(flow, now)
        self.departures.fail_hopeless_receivers(now)

    def refuse(self, ticket: int, group: int, members: Iterable[int], error: DlcpError) -> None:
        """The next collective of a group cannot begin here. It takes its number nevertheless,
        because the peers count it; its failure is reported like any other."""
        stream = self.state.streams.open(group, EVERYBODY)
        number = stream.next_number()
        stream.begin(number)
        others = [rank for rank in members if rank != self.state.rank]
        for rank in others:
            stream.take(rank, number)
            self.state.flows[rank].forget(group, number)
        stream.fail(number)
        self.state.outcomes.refused(ticket, error, group, number, tuple(others))

    def _check_room(self) -> None:
        self.state.outcomes.raise_if_broken()
        if len(self.state.operations) + len(self.state.mailbox.receivers) >= MAX_OPEN:
            raise TooMany(f"{MAX_OPEN} operations in flight; wait for some before submitting more")

    def _begin_next(self, operation: Operation, stream: Stream, now: float) -> None:
        self._check_room()
        self._begin(operation, stream, stream.next_number(), now)

    def _begin(self, operation: Operation, stream: Stream, number: int, now: float) -> None:
        state = self.state
        id_ = state.open(operation, stream, number)
        operation.start(state.owner, now)
        flows = [state.flows[rank] for rank in operation.peers]
        readies = [operation.ready_for(flow.rank) for flow in flows]
        short = sum([ready.incoming for ready in readies]) < SHORT
        # READY to all of them, before a failure, so that no peer waits
        for flow, ready in zip(flows, readies, strict=True):
            flow.look_after_paths(now)
            late = flow.arrivals.early.was_cut((stream.wire, number))
            if flow.twin is None:
                flow.arrivals.expect(stream.wire, number, ready.incoming, short=short)
            pending = PendingReady(ready, *stream.digests.next_for(flow.rank), late)
            if not state.departed.is_over(flow.rank):
                state.repeater.send(flow, id_, pending, now)
                self.detector.watch(flow, now)
        if (error := stream.aborted_ahead(number)) is not None:
            self.failures.fail(operation, error)
        for flow in flows:
            known = stream.take(flow.rank, number)
            if known is not None and id_ in state.operations:
                self._match(flow, operation, known, now, late=False)
        for rank in [r for r, early in stream.announced.items() if number in early]:
            stream.take(rank, number)
            state.flows[rank].arrivals.forget(stream.wire, number)
            if id_ in state.operations:
                self._unexpected(state.flows[rank], operation)
        if state.departed:
            self.departures.ask_departed(operation, now)

    def _receive(self, operation: Operation, message: Announced, now: float) -> None:
        """A receiver and its message were matched."""
        operation.meet(message.rank)
        stream = self.state.streams.open(message.stream, message.rank)
        self._begin(operation, stream, message.number, now)

    # --- READYs of the peers ----------------------------------------------------------------

    def on_ready(self, flow: Flow, header: Header, body: bytes, now: float) -> None:
        """A peer's READY. Raises MalformedDatagram."""
        wire, number = header.stream, header.operation
        carries = bool(header.flags & CARRIES)
        ready = control.unpack_ready_untrusted(body, carries=carries)
        stream = self.state.streams.of_peer(wire, flow.rank)
        flow.on_window(ready.window, header.sent_at, now)
        if not stream.digests.check(flow.rank, ready.checked, ready.digest):
            self.replicas.diverged(flow.rank, stream, ready.checked)
            return
        if ready.checked:  # it has the result, and so this rank's part of it
            self.state.on_result(flow.rank, (wire, stream.peer, ready.checked))
            flow.outgoing.acknowledge_all(wire, ready.checked, now, left=False)
        operation = self.state.operations.get((wire, stream.peer, number))
        if operation is not None:
            self._on_ready_of_open(flow, operation, header, ready, now)
            return
        if stream.near(number):
            if not self._reserve(flow, stream, number, ready):
                return  # without an answer it will be repeated
            self._on_announcement(flow, stream, number, ready, now)
        elif not stream.has_begun(number):
            return  # too far ahead: likewise
        flow.outbox.heard_ready.add((wire, number))

    def _reserve(self, flow: Flow, stream: Stream, number: int, ready: Ready) -> bool:
        """Count the data of a READY whose operation has not begun here. False: there is no room to
        remember it."""
        if not stream.room(flow.rank, number):
            return False
        early, carried = flow.arrivals.early, ready.carried
        return carried is None or early.keep_carried((stream.wire, number), len(carried))

    def on_ready_ack(self, flow: Flow, header: Header, now: float) -> None:
        """The peer has this rank's READY, which was repeated. The peer discarded the data that
        came before this READY: ask which are missing."""
        if self.state.on_ready_acked(flow.rank, operation_id(header, flow.rank)):
            flow.outgoing.ask(now, (header.stream, header.operation))

    def _on_ready_of_open(
        self, flow: Flow, operation: Operation, header: Header, ready: Ready, now: float
    ) -> None:
        if header.round:  # repeated: the peer does not know yet that its READY arrived
            flow.outbox.heard_ready.add((header.stream, header.operation))
        if flow.rank not in operation.peers:
            self._unexpected(flow, operation)
        elif flow.rank not in operation.ready_ranks:
            self._match(flow, operation, ready, now, late=bool(header.flags & LATE))
            if ready.carried is not None and flow.rank in operation.ready_ranks:
                flow.heard(now)

    def _match(
        self, flow: Flow, operation: Operation, ready: Ready, now: float, *, late: bool
    ) -> None:
        """Compare the READY of a peer with that of this rank: data may flow, or it fails."""
        own = operation.ready_for(flow.rank)
        if not own.agrees_with(ready):
            text = (
                f"{operation.label}: rank {flow.rank} on {flow.host} submitted "
                f"{ready.describe()}; rank {self.state.rank} here submitted {own.describe()}. "
                f"All ranks must submit the same operations of a group in the same order"
            )
            self.failures.fail(operation, RanksDisagree(text))
            return
        self.state.repeater.remind(flow, operation.id, now)
        operation.on_peer_ready(flow.rank, ready, now, late=late)
        if ready.carried is not None and operation.id in self.state.operations:
            flow.arrivals.expect_nothing(operation.id[0], operation.id[2])
            operation.on_carried(flow.rank, ready.carried, now)
        flow.arrivals.replay(operation.id[0], operation.id[2], now)

    def _unexpected(self, flow: Flow, operation: Operation) -> None:
        text = (
            f"{operation.label}: rank {flow.rank} on {flow.host} takes part in it, which rank "
            f"{self.state.rank} here does not expect: the ranks of a group must be the same on all "
            f"of them, and so must root and schedule"
        )
        self.failures.fail(operation, RanksDisagree(text))

    def _on_announcement(
        self, flow: Flow, stream: Stream, number: int, ready: Ready, now: float
    ) -> None:
        """A peer is ahead of this rank, or offers a message."""
        if ready.carried is not None and number not in stream.announced.get(flow.rank, ()):
            flow.heard(now)  # a replay is not the first of its operation
        stream.announce(flow.rank, number, ready)
        flow.arrivals.early.announce((stream.wire, number))
        self._offer(stream, now)

    def _offer(self, stream: Stream, now: float) -> None:
        """Match messages whose turn it is with receivers."""
        if not stream.leads_to(self.state.rank):
            return
        for number, ready in stream.offers():
            message = Announced(stream.peer, stream.wire, number, stream.group, ready.tag)
            receiver = self.state.mailbox.on_message(message)
            if receiver is not None:
                self._receive(receiver, message, now)
        self.departures.fail_hopeless_receivers(now)

    # --- peers abort --------------------------------------------------------------------------

    def abort(self, rank: int, wire: int, number: int, error: DlcpError, now: float) -> None:
        """`rank` aborted an operation. One that has not begun here fails as soon as it does."""
        id_ = (*stream_id(wire, rank), number)
        if (operation := self.state.operations.get(id_)) is not None:
            self.failures.fail(operation, error)
        elif is_known(wire) and not self.state.streams.full:
            stream = self.state.streams.open(*id_[:2])
            if wire & MESSAGES:
                self._withdraw(stream, rank, number, now)
            elif stream.near(number):
                stream.abort_ahead(number, error)

    def _withdraw(self, stream: Stream, rank: int, number: int, now: float) -> None:
        """A message that was not received yet never will be. Its number is used up: a hole in the
        sequence would keep the messages far behind it out permanently."""
        self.state.mailbox.withdraw(rank, stream.wire, number)
        if stream.leads_to(self.state.rank) and stream.near(number):
            stream.take(rank, number)
            stream.begin(number)
            stream.fail(number)
            self.state.flows[rank].forget(stream.wire, number)
            self._offer(stream, now)
