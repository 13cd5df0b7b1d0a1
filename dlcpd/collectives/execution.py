"""Runs one rank's program over the transport. The only executor: every collective is a program.

A step begins when all steps that it waits for are done. A send goes out once its peer's READY
agreed; received data go straight to their place, or to scratch memory while the place is not
free; a reduction runs at once.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from dlcpd.collectives.awaiting import Awaiting
from dlcpd.collectives.buffers import Buffers
from dlcpd.collectives.client_steps import ClientSteps, computation_failed
from dlcpd.collectives.local_steps import LocalSteps
from dlcpd.collectives.loss.accounts import Accounts
from dlcpd.collectives.loss.contribution import Contribution
from dlcpd.collectives.loss.recording import Recording
from dlcpd.collectives.order import Order
from dlcpd.collectives.progress import Progress
from dlcpd.collectives.receives import Receives
from dlcpd.collectives.replica_digest import ReplicaDigest
from dlcpd.collectives.scratch import ScratchPool
from dlcpd.collectives.sends import Sends
from dlcpd.collectives.step_runner import StepRunner
from dlcpd.contract.errors import ArenaFull, RanksDisagree
from dlcpd.core.session.session import Session
from dlcpd.core.session.stream_ids import MESSAGES, OperationId
from dlcpd.core.transfer.incoming import Incoming
from dlcpd.core.transfer.sender import TransferSender
from dlcpd.core.wire.bitmap import Segments, bits_of
from dlcpd.core.wire.control import Ready
from dlcpd.core.wire.datagram import Bytes
from dlcpd.core.wire.header import Key
from dlcpd.schedules.model import Compute, Program, Receive


@dataclass(slots=True, eq=False, repr=False)
class Execution:
    """One operation on one rank, as its session sees it: `program` over `memory` (INPUT and OUTPUT;
    the same memory if it is in place)."""

    order: Order
    program: Program
    memory: tuple[Bytes, Bytes]
    scratch: ScratchPool
    accounts: Accounts
    receiving: Callable[[int], Program] | None = None  # of a message: the program, by its sender
    recording: Recording | None = None  # if a ledger is kept
    charge: int = 0  # bytes that it holds from its beginning to its end, besides scratch memory
    id: OperationId = (0, 0, 0)
    begun: float = 0.0  # time of `start`
    ready_ranks: set[int] = field(default_factory=set)  # in the session, like all ranks here
    unbooked: set[tuple[int, Key]] = field(default_factory=set)
    done: bool = False  # the result is complete
    released: bool = False  # no peer needs the memory
    ticket: int = field(init=False)  # the client's number for it
    deadline: float = field(init=False)  # absolute
    peers: frozenset[int] = field(init=False)
    buffers: Buffers = field(init=False)
    contribution: Contribution = field(init=False)
    progress: Progress = field(init=False)
    _staged: dict[int, Bytes] = field(default_factory=dict)  # see `Receives`
    _due: dict[int, Compute] = field(default_factory=dict)  # see `ClientSteps`
    # peers that may not have this rank's READY, and are sent no data that would show that they do
    _unconfirmed: set[int] = field(init=False)
    _apart: set[int] = field(default_factory=set)  # open sends of data that READY did not bring
    _session: Session = field(init=False)  # this and the rest since `start`
    sends: Sends = field(init=False)
    receives: Receives = field(init=False)
    _client: ClientSteps = field(init=False)
    _runner: StepRunner = field(init=False)
    _replica: ReplicaDigest | None = field(init=False)

    def __post_init__(self) -> None:
        self.ticket, self.deadline = self.order.ticket, self.order.deadline
        self.buffers = Buffers(self.memory, self.scratch, self.accounts.holdings)
        self.contribution = Contribution(self.order, self.buffers, self.accounts, self.recording)
        self._run(self.program)

    def _run(self, program: Program) -> None:
        """The operation runs `program`, which has not begun."""
        self.program, members = program, self.order.group.members
        self.peers = frozenset(members[peer] for peer in program.peers)
        self._unconfirmed = {members[peer] for peer in program.strangers}
        self.progress = Progress(program)
        self.buffers.serve(program)

    # --- queries of the session ------------------------------------------------------------

    @property
    def label(self) -> str:
        """For errors: the number that all ranks give it, and the group."""
        return self.order.label(self.id)

    def ready_for(self, rank: int) -> Ready:
        """The READY that `rank` must agree with."""
        order, peer = self.order, self.order.group.index[rank]
        return Ready(
            order.terms,
            order.fingerprint,
            self.sends.segment_sizes[rank],
            order.tag,
            self.program.outgoing.get(peer, 0),
            self.program.incoming.get(peer, 0),
            carried=self.sends.carried(rank),
        )

    def needs(self, rank: int, *, submitted: bool) -> bool:
        """Whether this operation cannot end without more of `rank`, which has `submitted` it."""
        awaiting = self._awaiting()
        return awaiting.owed_by(rank) if submitted else awaiting.needs(rank)

    def awaited(self) -> tuple[frozenset[int], str]:
        """Ranks that the operation waits for, and in words which of them owe what."""
        return self._awaiting().ranks_and_text(self.label)

    def _awaiting(self) -> Awaiting:
        members = self.order.group.members
        ready = self.ready_ranks
        unconfirmed = self._unconfirmed | {rank for rank, _ in self.unbooked}
        return Awaiting(
            self.progress, members, self.peers, ready, self._staged, unconfirmed, self._due
        )

    # --- beginning ---------------------------------------------------------------------------

    def meet(self, rank: int) -> None:
        """The message to be received comes from `rank`."""
        if self.receiving is not None:
            self._run(self.receiving(self.order.group.index[rank]))

    def prepare(self, session: Session) -> Iterator[int]:
        """Prepare the contribution, and yield the bytes of each piece of work, so that the engine
        can serve other clients in between. `start` does it in one go if it has not been done."""
        sizes = {rank: session.flows[rank].segment_size for rank in self.peers}
        return self.contribution.prepare(self.program, sizes)

    def start(self, session: Session, now: float) -> None:
        """Begin all steps that wait for no other."""
        self._session, self.begun = session, now
        order, buffers, progress = self.order, self.buffers, self.progress
        contribution, id_ = self.contribution, self.id
        sizes = {rank: session.flows[rank].segment_size for rank in self.peers}
        if not contribution.prepared or contribution.segment_sizes != sizes:
            deque(contribution.prepare(self.program, sizes), maxlen=0)
        loss, flows = contribution.loss, session.flows
        local = LocalSteps(order, progress, buffers, contribution.encoded)
        self.sends = Sends(id_, order, progress, buffers, flows, sizes, self.ready_ranks, loss)
        self._unconfirmed |= self.sends.carry(session.may_carry)
        self.receives = Receives(id_, order, progress, buffers, local, loss, self._staged)
        self._client = ClientSteps(id_, self.ticket, session, self._due, self.program.computed)
        if order.computes and not self.program.computed:
            self._client.tell_none()
        self._replica = (
            ReplicaDigest(id_, order, session.rank, session.digester, buffers)
            if order.digest_every
            else None
        )
        self._runner = StepRunner(
            id_,
            progress,
            buffers,
            self.sends,
            self.receives,
            local,
            self._client,
            self._replica,
            session.trace,
            session.number,
        )
        self._runner.start()
        self._finish_if_done(now)

    # --- news of peers -------------------------------------------------------------------------

    def on_peer_ready(self, rank: int, ready: Ready, now: float, *, late: bool) -> None:
        """Send `rank` its transfers; send them again if they arrived too early (`late`)."""
        self._note("ready", rank)
        self.ready_ranks.add(rank)
        self.receives.segment_sizes[rank] = ready.segment_size
        stranger = self.order.group.index[rank] in self.program.strangers
        if stranger or ready.carried is not None:  # no transfer will show that READY arrived
            self._session.flows[rank].outbox.heard_ready.add((self.id[0], self.id[2]))
        self.sends.on_ready(rank, late=late)
        self._finish_if_done(now)

    def on_carried(self, rank: int, data: bytes, now: float) -> None:
        """The READY of `rank` has brought all that it owes this operation."""
        peer, at = self.order.group.index[rank], 0
        for position in self.program.arriving.get(peer, ()):
            step = self.program.steps[position]
            assert isinstance(step, Receive)  # noqa: S101  # Program.arriving holds no others
            size = step.span.size
            self._note("received", rank, step.index, size, 0)
            if step.implies:
                self.sends.acknowledge(rank, step.implies, now, whole=True)
            part, at = np.frombuffer(data, np.uint8, size, at), at + size
            try:
                placed = self.receives.take(position, step, part)
            except ArenaFull as lacking:
                self._session.fail(self, lacking)
                return
            if placed:
                self._runner.done(position)
                self._finish_if_done(now)

    def send_apart(self, rank: int) -> None:
        """`rank` does not answer a READY that carries data: send them as DATA."""
        self._apart.update(self.sends.send_apart(rank))

    def on_known(self, rank: int) -> None:
        """`rank` has this rank's READY."""
        self._unconfirmed.discard(rank)
        self._end_if_unused()

    def on_left(self, rank: int, now: float) -> None:
        """`rank` takes nothing more, and needs nothing more."""
        self._unconfirmed.discard(rank)
        self.unbooked = {each for each in self.unbooked if each[0] != rank}
        for position in self.sends.withdraw(rank):
            self._runner.done(position)
            self._finish_if_done(now)
        self._end_if_unused()

    def settle_implied(self, rank: int, key: Key, now: float) -> None:
        """A transfer from `rank` begins to arrive: it acknowledges the sends that it implies."""
        if implied := self.receives.implied(rank, key):
            self.sends.acknowledge(rank, implied, now, whole=False)

    def open_incoming(self, rank: int, key: Key) -> Incoming | str:
        """The place for a transfer from `rank`, or the reason to discard it."""
        try:
            return self.receives.open(rank, key)
        except ArenaFull as lacking:
            self._session.fail(self, lacking)
            return "memory"

    def on_received(self, incoming: Incoming, now: float) -> None:
        """A transfer is here, except for the segments that stay missing."""
        rank, transfer, loss = incoming.rank, incoming.key.transfer, self.contribution.loss
        missing = incoming.receiver.missing
        self._note("received", rank, transfer, len(incoming.buffer), missing)
        if missing and loss is not None:
            loss.book(self.id[2], incoming)
            if incoming.receiver.waived:
                self.unbooked.add((rank, incoming.key))
        position = self.program.receives[self.order.group.index[rank], transfer]
        step = self.program.steps[position]
        assert isinstance(step, Receive)  # noqa: S101  # Program.receives holds no others
        if step.implies:
            self.sends.acknowledge(rank, step.implies, now, whole=True)
        if self.receives.put(position, step, incoming):
            self._runner.done(position)
            self._finish_if_done(now)

    def on_acknowledged(self, rank: int, sender: TransferSender, now: float) -> None:
        """`rank` has received a transfer of this rank."""
        peer = self.order.group.index[rank]
        self._note("taken", rank, sender.key.transfer, sender.retransmitted)
        position = self.program.sends[peer, sender.key.transfer]
        if position in self._apart:  # the step was done as it began
            self._apart.remove(position)
            self._end_if_unused()
            return
        self._runner.done(position)
        self._finish_if_done(now)

    def on_waived(
        self, rank: int, sender: TransferSender, missing: Segments, *, told: bool
    ) -> Segments:
        """`rank` asks to waive `missing`, or tells that it has. Returns the segments that must
        arrive; if it has waived more than it may, the operation fails."""
        loss = self.contribution.loss
        if told and not sender.permits(bits_of(missing, sender.segments)):
            text = f"{self.label}: rank {rank} went without data that this rank requires to arrive"
            self._session.fail(self, RanksDisagree(text))
            return missing[:0]
        if loss is None:
            return missing  # nothing may be waived, whatever a peer asks
        before, peer = loss.vetoed, self.order.group.index[rank]
        position = self.program.sends[peer, sender.key.transfer]
        refused = loss.on_waived(self.id[2], rank, position, sender, missing)
        if loss.vetoed > before:
            self._session.count("energy_veto", loss.vetoed - before)
        if len(missing) and not len(refused):
            self._note("agreed", rank, sender.key.transfer, len(missing))
        return refused

    def on_computed(self, position: int, now: float, error: str = "") -> bool:
        """The client has computed a step; with an error, the operation fails. False: that step is
        not due, and nothing happens."""
        step = self._client.computed(position)
        if step is None:
            return False
        if error:
            reason = computation_failed(self.label, self._session.rank, step, error)
            self._session.fail(self, reason)
            return True
        self._runner.done(position)
        self._finish_if_done(now)
        return True

    # --- ends --------------------------------------------------------------------------------

    def closed(self) -> None:
        """The session has forgotten it: release its bytes. Without a result, keep the reapplied
        residuals for the next operation."""
        if not self.done:
            self.contribution.put_back(self.id[2])
        self.buffers.close()

    def _finish_if_done(self, now: float) -> None:
        if self.done:
            self._end_if_unused()
            return
        progress = self.progress
        if progress.results or (self.order.exclusive and progress.holding):
            return
        if self.contribution.loss is not None and self.sends.unsettled:
            return  # its residual is not known yet
        meets = not self.program.steps and not self.order.buffered
        if meets and self.ready_ranks < self.peers:
            return  # without steps, it is done when all peers have met
        self.done, self.released = True, not progress.holding
        self._note("result")
        self.contribution.keep(self.id[2])
        digest = self._replica.result() if self._replica is not None else None
        source = next(iter(self.program.peers)) if self.id[0] & MESSAGES else -1
        self._session.done(self, now, stats=self.sends.stats(), digest=digest, source=source)
        self._end_if_unused()

    def _end_if_unused(self) -> None:
        """A done operation is over when no peer needs anything of it, its READY included."""
        if not self.done or self.id not in self._session.operations:
            return
        if not self.released and not self.progress.holding:
            self.released = True
            self._session.released(self)
        if not (self.progress.open or self._unconfirmed or self._apart or self.unbooked):
            self._session.finished(self)

    def _note(self, what: str, *more: int) -> None:
        trace = self._session.trace
        if trace.on:
            trace.note(what, self._session.number, self.id, *more)
