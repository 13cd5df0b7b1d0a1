"""Runs one rank's program over the transport. The only executor: every collective is a program.

A step begins when all steps that it waits for are done. A send goes out once its peer's READY
agreed; received data go straight to their place, or to scratch memory while the place is not
free; a reduction runs at once.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.collectives.loss.accounts import Accounts
from dlcpd.collectives.loss.bounded import Bounded, Marks
from dlcpd.collectives.loss.encoded import Encoded
from dlcpd.collectives.loss.recording import Losses, Recording
from dlcpd.collectives.loss.stretch import Stretch, on_the_wire
from dlcpd.collectives.order import Order
from dlcpd.collectives.scratch import ScratchPool
from dlcpd.collectives.segment_sum import SegmentSum, may_add
from dlcpd.contract.traffic import DROP_PRECEDENCES, PROTECTED
from dlcpd.core.session.digests import Digest, Piece
from dlcpd.core.session.events import Stats
from dlcpd.core.session.session import Session
from dlcpd.core.session.stream_ids import MESSAGES, OperationId
from dlcpd.core.transfer.incoming import Incoming
from dlcpd.core.transfer.packetizer import all_of_tag, by_tag, natural_order, segment_count
from dlcpd.core.transfer.receiver import TransferReceiver
from dlcpd.core.transfer.sender import State, TransferSender
from dlcpd.core.wire.bitmap import Segments
from dlcpd.core.wire.control import Ready
from dlcpd.core.wire.datagram import Bytes
from dlcpd.core.wire.header import MAX_SEGMENTS, Key
from dlcpd.numerics.canonical import make_canonical
from dlcpd.numerics.elements import STORAGE
from dlcpd.numerics.reduce import reduce_in_order
from dlcpd.schedules.model import (
    NOT_REPLICATED,
    Buffer,
    Decode,
    Encode,
    Part,
    Program,
    Receive,
    Reduce,
    Send,
    Span,
    Transfer,
    holds,
    replicated,
)

Tags = NDArray[np.uint8]  # by segment: traffic class and drop precedence

SCRATCH: Final = int(Buffer.SCRATCH)  # used for every span: members of enums are slow to look up
SMALL: Final = 16 << 10  # bytes to one peer that go out with READY: under the smallest window


@dataclass(slots=True, eq=False)
class Execution:
    """One operation on one rank: `program` over `memory` (INPUT and OUTPUT; the same memory if
    it is in place)."""

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
    done: bool = False  # the result is complete
    released: bool = False  # no peer needs the memory
    peers: frozenset[int] = field(init=False)
    _session: Session = field(init=False)
    _prepared: bool = False
    _sizes_in: dict[int, int] = field(default_factory=dict)  # segment size by sender
    _sizes_out: dict[int, int] = field(default_factory=dict)  # by receiver
    _waits: list[int] = field(init=False)  # by step: number of steps it waits for
    _open: set[int] = field(init=False)  # steps that are not done
    _results: int = field(init=False)  # number of those that are no sends
    _holding: int = field(init=False)  # number of those that send from the caller's memory
    _blocked: dict[int, list[int]] = field(default_factory=dict)  # by rank: sends before READY
    _senders: dict[int, TransferSender] = field(default_factory=dict)  # by step
    _aside: set[int] = field(default_factory=set)  # steps whose data go to scratch memory first
    _staged: dict[int, Incoming] = field(default_factory=dict)  # by step: its place is not free
    _sums: dict[int, SegmentSum] = field(default_factory=dict)  # by reduction: begun early
    _buffers: dict[int, Bytes] = field(default_factory=dict)  # scratch in use
    _uses: list[int] = field(init=False)  # by scratch buffer: open steps that touch it
    _held: int = 0  # bytes that are counted for it
    _closed: bool = False  # no bytes are counted any more
    _strangers: list[int] = field(init=False)  # peers without data that would acknowledge READY
    _loss: Bounded | None = None
    _digest: Digest = field(default_factory=Digest)

    def __post_init__(self) -> None:
        self._prepare()

    def _prepare(self) -> None:
        program, members = self.program, self.order.group.members
        self.peers = frozenset(members[peer] for peer in program.peers)
        self._waits = list(program.waits)
        self._open = set(range(len(program.steps)))
        self._results, self._holding = program.results, program.holding
        self._uses = list(program.uses)
        self._strangers = [members[peer] for peer in program.strangers]

    # --- queries of the session ------------------------------------------------------------

    @property
    def ticket(self) -> int:
        return self.order.ticket

    @property
    def deadline(self) -> float:
        return self.order.deadline

    @property
    def label(self) -> str:
        """For errors: the number that all ranks give it, and the group."""
        kind = "message" if self.id[0] & MESSAGES else "operation"
        number = f"{kind} {self.id[2]}" if self.id[2] else self.order.terms
        return f"{number} of group {self.order.group.name}" if self.order.group.name else number

    def ready_for(self, rank: int) -> Ready:
        """The READY that `rank` must agree with."""
        order, peer = self.order, self.order.group.index[rank]
        return Ready(
            order.terms,
            order.fingerprint,
            self._sizes_out[rank],
            order.tag,
            self.program.outgoing.get(peer, 0),
            self.program.incoming.get(peer, 0),
        )

    # --- memory ------------------------------------------------------------------------------

    def hold(self, size: int) -> None:
        """Count `size` bytes more as held for it."""
        if not self._closed:
            self._held += size
            self.accounts.holdings.take(size)

    def _let_go(self, size: int) -> None:
        if not self._closed:
            self._held -= size
            self.accounts.holdings.give(size)

    def closed(self) -> None:
        """The session has forgotten it: release its bytes."""
        if self._held:
            self._let_go(self._held)
        self._closed = True

    def _lacks_room(self, position: int, step: Receive) -> bool:
        """Whether the daemon has no memory for data about to arrive that do not go to the arena.
        Then the operation fails."""
        number, size = step.span.buffer - SCRATCH, step.span.size
        if not self._waits[position]:
            if number < 0 or number in self._buffers:
                return False
            part = self.program.parts.get(position)
            size = self.program.scratch[number] * (part.coming if part is not None else 1)
        holdings = self.accounts.holdings
        if holdings.has_room(size):
            return False
        self._session.fail(self, holdings.lack(size, f"what arrives for {self.label}"))
        return True

    # --- life --------------------------------------------------------------------------------

    def meet(self, rank: int) -> None:
        """The message to be received comes from `rank`."""
        if self.receiving is not None:
            self.program = self.receiving(self.order.group.index[rank])
            self._prepare()

    def prepare(self, session: Session) -> Iterator[int]:
        """Reapply residuals, encode the contribution, and measure the segments that may be lost.

        Yields the bytes of each piece of work, so that the engine can serve other clients in
        between. `start` does it in one go if it has not been done.
        """
        self._sizes_out = self._segment_sizes(session)
        loss = self.order.loss
        # an exact operation reapplies residuals, too
        wanted = loss.bound or self.order.codec or (loss.name and self.accounts.residuals)
        if self.recording is not None and not self._prepared:
            self.recording.begin(self.memory[Buffer.INPUT])
        if wanted and self._loss is None:
            self._loss = Bounded(self.order, self.memory[Buffer.INPUT], self.accounts)
        if self.recording is not None and not self._prepared:
            yield from self._record(self.recording)
        if self._loss is not None and self._loss.encoded is not None and not self._prepared:
            yield from self._encode(self._loss.encoded)
        if self._loss is not None and not self.order.layers.lossless:
            yield from self._measure(self._loss)
        self._prepared = True

    def _record(self, recording: Recording) -> Iterator[int]:
        """Record the contribution, after residuals were added."""
        tensor = self.memory[Buffer.INPUT]
        recording.contribute(tensor, self._loss.brought_back if self._loss is not None else ())
        yield len(tensor)

    def _encode(self, encoded: Encoded) -> Iterator[int]:
        """Encode the contribution, which waits for no step."""
        for step in self.program.steps:
            if isinstance(step, Encode) and not step.rounds:
                part, wire = self._bytes(step.source), self._bytes(step.target)
                yield from encoded.contribute(part, wire, step.source.start)

    def _segment_sizes(self, session: Session) -> dict[int, int]:
        return {rank: session.flows[rank].segment_size for rank in self.peers}

    def start(self, session: Session, now: float) -> None:
        """Begin all steps that wait for no other."""
        self._session, self.begun = session, now
        if not self._prepared or self._sizes_out != self._segment_sizes(session):
            deque(self.prepare(session), maxlen=0)
        self._advance([at for at, waits in enumerate(self._waits) if not waits])
        self._finish_if_done(now)

    def _measure(self, loss: Bounded) -> Iterator[int]:
        steps = enumerate(self.program.steps)
        sends = [(at, s) for at, s in steps if isinstance(s, Send) and s.lossy]
        sizes = self._sizes_out
        if (encoded := loss.encoded) is not None:
            wires = {at: (self._bytes(s.span), s.encodes, sizes[self._rank(s)]) for at, s in sends}
            return loss.measure_wires(encoded, wires)
        return loss.measure({at: (s.origin, s.span.size, sizes[self._rank(s)]) for at, s in sends})

    def on_peer_ready(self, rank: int, ready: Ready, now: float, *, late: bool) -> None:
        """Send `rank` its transfers; send them again if they arrived too early (`late`)."""
        self._note("ready", rank)
        self.ready_ranks.add(rank)
        self._sizes_in[rank] = ready.segment_size
        if rank in self._strangers:  # no transfer will show that READY arrived
            self._session.flows[rank].outbox.heard_ready.add((self.id[0], self.id[2]))
        if late:
            for sender in [s for at, s in self._senders.items() if self._rank_of(at) == rank]:
                self._session.flows[rank].resend(sender)
        for position in self._blocked.pop(rank, []):
            self._send(position)
        self._finish_if_done(now)

    def _advance(self, ready: list[int]) -> None:
        """Begin steps, and the followers of those that are done at once."""
        steps = deque(ready)
        while steps:
            position = steps.popleft()
            if self._begin(position):
                steps.extend(self._close(position))

    def _begin(self, position: int) -> bool:
        """Begin a step that waits for no other. True: it is done."""
        step = self.program.steps[position]
        if isinstance(step, Send):
            self._send_when_ready(position, step)
            return False
        if isinstance(step, Receive):
            return self._unstage(position)
        if isinstance(step, Encode | Decode):
            self._change_form(step)
            return True
        trace = self._session.trace
        since = trace.microseconds() if trace.on else None
        begun = self._sums.pop(position, None)
        if begun is not None:
            begun.finish()
        else:
            self._reduce(step)
        if since is not None:
            self._note("reduced", since, step.target.size)
        if step.last and self.program.alone and step.piece != NOT_REPLICATED:
            make_canonical(self._bytes(step.target), self.order.dtype)  # all ranks compute it
        return True

    def _done(self, position: int, now: float) -> None:
        """A transfer is done."""
        self._advance(self._close(position))
        self._finish_if_done(now)

    def _close(self, position: int) -> list[int]:
        """Mark a step as done. Returns the steps that now wait for no other."""
        program = self.program
        step = program.steps[position]
        self._open.remove(position)
        for number in program.touched[position]:
            self._release_scratch(number)
        if isinstance(step, Send):
            self._holding -= holds(step)
        else:
            self._results -= 1
            if step.piece != NOT_REPLICATED:
                self._add_digest(step)
        ready = []
        for follower in program.followers[position]:
            self._waits[follower] -= 1
            if not self._waits[follower]:
                ready.append(follower)
        return ready

    # --- steps -------------------------------------------------------------------------------

    def _change_form(self, step: Encode | Decode) -> None:
        """Decode, or encode a result: contributions were encoded before the operation began."""
        assert self._loss is not None  # noqa: S101  # `prepare` makes it where there is a codec
        encoded = self._loss.encoded
        assert encoded is not None  # noqa: S101  # programs encode where the order has a codec
        source, target = self._bytes(step.source), self._bytes(step.target)
        if isinstance(step, Decode):
            encoded.decode(source, target)
        elif step.rounds:
            encoded.round(source, target, step.source.start)

    def _send_when_ready(self, position: int, step: Send) -> None:
        """Small transfers go out with READY: ranks of a job are mostly in step, so the peer can
        take them. A peer that cannot keeps them, or reports by a LATE READY that it did not."""
        rank = self._rank(step)
        if self.program.outgoing[step.peer] <= SMALL or rank in self.ready_ranks:
            self._send(position)
        else:
            self._blocked.setdefault(rank, []).append(position)

    def _send(self, position: int) -> None:
        step = self.program.steps[position]
        assert isinstance(step, Send)  # noqa: S101  # callers pass positions of sends
        rank = self._rank(step)
        sender = self._senders[position] = self._sender(position, step, self._sizes_out[rank])
        self._session.flows[rank].send(sender)

    def _sender(self, position: int, step: Send, segment_size: int) -> TransferSender:
        stretch = self._stretch(step)
        marks, options = self._marks(position, step, stretch, segment_size), dict[str, Any]()
        if marks is not None:
            classes = stretch.layers.classes_of(stretch.start, stretch.size, segment_size)
            tags = classes * np.uint8(DROP_PRECEDENCES) + marks.drop_precedences
            order = by_tag(marks.order, tags)
            options = {"weight": marks.weight, "budget": marks.budget}
        else:
            tags, order = _protected(stretch, segment_size)
        urgent = self.order.exclusive and step.span.buffer == Buffer.OUTPUT
        return TransferSender(
            self._key(step),
            self._bytes(step.span),
            step.origin,
            segment_size,
            tags,
            order,
            urgent=urgent,
            **options,
        )

    def _stretch(self, step: Transfer) -> Stretch:
        order, size = self.order, step.encodes or step.span.size
        plain = Stretch(order.layers, order.loss.exempt, step.origin, size)
        if order.codec is None:
            return plain
        return on_the_wire(plain, order.codec, STORAGE[order.dtype].itemsize)

    def _marks(
        self, position: int, step: Send, stretch: Stretch, segment_size: int
    ) -> Marks | None:
        if not step.lossy or self._loss is None or self.order.layers.lossless:
            return None
        return self._loss.marks(position, stretch, segment_size)

    def _reduce(self, step: Reduce) -> None:
        reduce_in_order(
            self._bytes(step.target),
            [self._bytes(span) for span in step.operands],
            self.order.dtype,
            self.order.reduce,
            divide_by=self._divisor(step),
        )

    def _divisor(self, step: Reduce) -> float:
        return step.divisor(self.order.reduce, self.order.group.size)

    def _unstage(self, position: int) -> bool:
        """The place of a transfer is free now. True: its staged data have moved there."""
        incoming = self._staged.pop(position, None)
        if incoming is not None:
            self._move(position, incoming)
        return incoming is not None

    # --- data in ------------------------------------------------------------------------------

    def settle_implied(self, rank: int, key: Key, now: float) -> None:
        """A transfer from `rank` begins to arrive: it acknowledges the sends that it implies."""
        position = self.program.receives.get((self.order.group.index[rank], key.transfer))
        if position not in self._open or position in self._staged or rank not in self.ready_ranks:
            return
        step = self.program.steps[position]
        assert isinstance(step, Receive)  # noqa: S101  # Program.receives holds no others
        self._settle_implied(rank, step, now, whole=False)

    def open_incoming(self, rank: int, key: Key) -> Incoming | str:
        """The place for a transfer from `rank`, or the reason to discard it."""
        position = self.program.receives.get((self.order.group.index[rank], key.transfer))
        if position is None:
            return "transfer"
        if rank not in self.ready_ranks:
            return "unready"  # no data count before both have agreed on the operation
        if position not in self._open or position in self._staged:
            return "duplicate"
        step = self.program.steps[position]
        assert isinstance(step, Receive)  # noqa: S101  # Program.receives holds no others
        size = step.span.size
        if segment_count(size, self._sizes_in[rank]) > MAX_SEGMENTS:
            return "segment"  # the peer's READY names segments that no bitmap could list
        if self._lacks_room(position, step):
            return "memory"
        if self._waits[position]:
            self._aside.add(position)
            buffer = self.scratch.take(size)
            self.hold(size)
            return Incoming(key, rank, self._receiver(rank, step), buffer, self._sizes_in[rank])
        incoming = Incoming(
            key, rank, self._receiver(rank, step), self._bytes(step.span), self._sizes_in[rank]
        )
        part = self.program.parts.get(position)
        if part is not None and not (step.lossy and self._loss is not None):
            self._add_up(incoming, part)
        return incoming

    def _add_up(self, incoming: Incoming, part: Part) -> None:
        """Let io add it to the other operands as it arrives, if segment sizes are equal."""
        order, size = self.order, incoming.segment_size
        if not may_add(order.dtype, order.reduce, size):
            return
        found = self._sums.get(part.reduction)
        if found is None:
            step = self.program.steps[part.reduction]
            assert isinstance(step, Reduce)  # noqa: S101  # see model.Part
            divide_by = self._divisor(step)
            if divide_by != int(divide_by):  # in the last of several stages
                return
            found = self._sums[part.reduction] = SegmentSum(
                self._bytes(step.target),
                [self._bytes(span) for span in step.operands],
                part.coming,
                size,
                int(divide_by),
            )
        if found.segment_size == size:
            incoming.sum, incoming.operand = found, part.operand
            incoming.last = self._waits[part.reduction] == 1

    def _settle_implied(self, rank: int, step: Receive, now: float, *, whole: bool) -> None:
        """The peer received the sends that this `implies` before it sent this. Until this is here
        as a `whole`, that is believed only of sends whose pass has ended."""
        for position in step.implies:
            sender = self._senders.get(position)
            if sender is not None and (whole or sender.state is State.AWAITING):
                self._session.flows[rank].outgoing.acknowledge(sender.key, now)

    def _receiver(self, rank: int, step: Receive) -> TransferReceiver:
        stretch, segment_size = self._stretch(step), self._sizes_in[rank]
        layers, _, start, size = stretch
        last_class, budget = layers.last_class(start, size, segment_size), None
        if step.lossy and self._loss is not None:
            budget = self._loss.budget(stretch, segment_size)
        return TransferReceiver(segment_count(size, segment_size), last_class, budget)

    def on_received(self, incoming: Incoming, now: float) -> None:
        """A transfer is here, except for the segments that stay missing."""
        peer = self.order.group.index[incoming.rank]
        position = self.program.receives[peer, incoming.key.transfer]
        self._note(
            "received",
            incoming.rank,
            incoming.key.transfer,
            len(incoming.buffer),
            incoming.receiver.missing,
        )
        if incoming.receiver.missing and self._loss is not None:
            self._loss.book(self.id[2], incoming)
        step = self.program.steps[position]
        assert isinstance(step, Receive)  # noqa: S101  # Program.receives holds no others
        self._settle_implied(incoming.rank, step, now, whole=True)
        if self._waits[position]:
            self._staged[position] = incoming
            return
        if position in self._aside:  # its place became free while it arrived
            self._move(position, incoming)
        self._done(position, now)

    def _move(self, position: int, incoming: Incoming) -> None:
        """Move received data from scratch memory to their place."""
        step = self.program.steps[position]
        assert isinstance(step, Receive)  # noqa: S101  # Program.receives holds no others
        self._bytes(step.span)[:] = incoming.buffer
        self._let_go(len(incoming.buffer))
        self.scratch.give(incoming.buffer)

    # --- verdicts of peers ----------------------------------------------------------------------

    def on_known(self, rank: int) -> None:
        """`rank` has this rank's READY."""
        self._end_if_unused()

    def on_left(self, rank: int, now: float) -> None:
        """`rank` takes nothing more, and needs nothing more."""
        for position in self._blocked.pop(rank, []):
            self._done(position, now)
        self._end_if_unused()

    def on_acknowledged(self, rank: int, sender: TransferSender, now: float) -> None:
        """`rank` has received a transfer of this rank."""
        peer = self.order.group.index[rank]
        self._note("taken", rank, sender.key.transfer, sender.retransmitted)
        self._done(self.program.sends[peer, sender.key.transfer], now)

    def on_waived(self, rank: int, sender: TransferSender, missing: Segments) -> Segments:
        """`rank` asks to waive `missing`. Returns the segments that must arrive."""
        if self._loss is None:
            return missing  # nothing may be waived, whatever a peer asks
        before = self._loss.vetoed
        refused = self._loss.on_waived(self.id[2], rank, sender, missing)
        if self._loss.vetoed > before:
            self._session.count("energy_veto", self._loss.vetoed - before)
        if len(missing) and not len(refused):
            self._note("agreed", rank, sender.key.transfer, len(missing))
        return refused

    # --- ends --------------------------------------------------------------------------------

    def _finish_if_done(self, now: float) -> None:
        if self.done:
            self._end_if_unused()
            return
        if self._results or (self.order.exclusive and self._holding):
            return
        meets = not self.program.steps and not self.order.buffered
        if meets and self.ready_ranks < self.peers:
            return  # without steps, it is done when all peers have met
        self.done, self.released = True, not self._holding
        self._note("result")
        if self._loss is not None:
            self._loss.keep()
        if self.recording is not None:
            losses = self._loss.losses if self._loss is not None else Losses()
            self.recording.end(self.id[2], self.memory[Buffer.OUTPUT], losses)
        digest = None
        if self.order.digest_every:
            digest = self._digest._replace(label=f"{self.label} ({self.order.terms})")
        source = next(iter(self.program.peers)) if self.id[0] & MESSAGES else -1
        self._session.done(self, now, stats=self._stats(), digest=digest, source=source)
        self._end_if_unused()

    def _end_if_unused(self) -> None:
        """A done operation is over when no peer needs anything of it, its READY included."""
        if not self.done or self.id not in self._session.operations:
            return
        if not self.released and not self._holding:
            self.released = True
            self._session.released(self)
        if not self._open and all(
            self._session.ready_acked(rank, self) for rank in self._strangers
        ):
            self._session.finished(self)

    def _stats(self) -> Stats:
        senders, loss = self._senders, self._loss
        sent = sum([senders[at].segments for at in self.program.own if at in senders])
        retransmitted = sum([sender.retransmitted for sender in senders.values()])
        if loss is None:
            return Stats(sent, retransmitted)
        energy = 0.0 if self.order.layers.lossless else loss.energy
        allowed = sum(s.budget.total for s in senders.values() if s.budget is not None)
        return Stats(sent, retransmitted, loss.waived, loss.reapplied, loss.lost, energy, allowed)

    def on_failed(self) -> None:
        """Keep the reapplied residuals for the next operation."""
        if self._loss is not None:
            self._loss.put_back()
        if self.recording is not None:
            self.recording.fail(self.id[2])

    def needs(self, rank: int) -> bool:
        """Whether this operation cannot end without `rank`."""
        if rank not in self.ready_ranks:
            return True
        steps = [self.program.steps[position] for position in self._open]
        return any(
            not isinstance(step, Send | Receive)
            or (isinstance(step, Receive) and self._rank(step) == rank)
            for step in steps
        )

    def owed_by(self, rank: int) -> bool:
        """Whether data of a rank have yet to arrive."""
        steps = [self.program.steps[position] for position in self._open]
        return any(isinstance(step, Receive) and self._rank(step) == rank for step in steps)

    def awaited(self) -> frozenset[int]:
        """Ranks that the operation waits for."""
        return self._awaiting()[0]

    def waiting_for(self) -> str:
        """For errors: which ranks owe what."""
        ranks, what = self._awaiting()
        return what.format(ranks=f"rank(s) {_listed(ranks)}", label=self.label)

    def _awaiting(self) -> tuple[frozenset[int], str]:
        """Ranks that the operation waits for, and the text that says for what."""
        if missing := self.peers - self.ready_ranks:
            return missing, "{ranks} to submit {label}"
        open_ = [(at, self.program.steps[at]) for at in self._open]
        owing = [(at, step) for at, step in open_ if isinstance(step, Receive)]
        if owing:  # receives that other steps wait for come first: the rest may follow
            first = [pair for pair in owing if self.program.followers[pair[0]]] or owing
            ranks = frozenset(self._rank(step) for _, step in first)
            return ranks, "data of {ranks} for {label}"
        taking = frozenset(self._rank(step) for _, step in open_ if isinstance(step, Send))
        return taking, "{ranks} to take their data of {label}"

    def _note(self, what: str, *more: int) -> None:
        trace = self._session.trace
        if trace.on:
            trace.note(what, self._session.number, self.id, *more)

    # --- places ------------------------------------------------------------------------------

    def _rank(self, step: Send | Receive | Decode) -> int:
        return self.order.group.members[step.peer]

    def _rank_of(self, position: int) -> int:
        step = self.program.steps[position]
        assert isinstance(step, Transfer)  # noqa: S101  # callers pass positions of transfers
        return self._rank(step)

    def _key(self, step: Send) -> Key:
        return Key(self.id[0], self.id[2], step.index)

    def _bytes(self, span: Span) -> Bytes:
        stop = span.start + span.size
        number = span.buffer - SCRATCH
        if number < 0:
            return self.memory[span.buffer][span.start : stop]
        buffer = self._buffers.get(number)
        if buffer is None:
            size = self.program.scratch[number]
            buffer = self._buffers[number] = self.scratch.take(size)
            self.hold(size)
        return buffer[span.start : stop]

    def _release_scratch(self, number: int) -> None:
        """A step that used a scratch buffer is done: free the buffer after the last such step."""
        self._uses[number] -= 1
        if not self._uses[number] and number in self._buffers:
            buffer = self._buffers.pop(number)
            self._let_go(len(buffer))
            self.scratch.give(buffer)

    def _add_digest(self, step: Receive | Reduce | Encode | Decode) -> None:
        every = self.order.digest_every
        if every and (step.piece + self.id[2]) % every == 0:
            span, here = replicated(step), self._session.rank
            source = here if isinstance(step, Reduce | Encode) else self._rank(step)
            value = self._session.digester.piece(self._bytes(span), step.piece)
            piece = Piece(step.piece, span.start, span.start + span.size, source)
            self._digest = self._digest.plus(value, piece)


def _protected(stretch: Stretch, segment_size: int) -> tuple[Tags, Segments]:
    """Tags and order of a transfer that may lose no segment."""
    layers, _, start, size = stretch
    count = segment_count(size, segment_size)
    order = natural_order(count)
    if layers.uniform:
        return all_of_tag(count, layers.most_urgent * DROP_PRECEDENCES + PROTECTED), order
    classes = layers.classes_of(start, size, segment_size)
    tags = classes * np.uint8(DROP_PRECEDENCES) + np.uint8(PROTECTED)
    return tags, by_tag(order, tags)


def _listed(ranks: frozenset[int]) -> str:
    return ", ".join(str(rank) for rank in sorted(ranks))
