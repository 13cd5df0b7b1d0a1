"""The sends of one operation: their senders, and the sends that wait for a peer's READY."""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.collectives.buffers import Buffers
from dlcpd.collectives.loss.bounded import Bounded
from dlcpd.collectives.loss.stretch import Stretch, stretch_of
from dlcpd.collectives.order import Order
from dlcpd.collectives.progress import Progress
from dlcpd.contract.traffic import DROP_PRECEDENCES, PROTECTED
from dlcpd.core.session.events import Stats
from dlcpd.core.session.flow import Flow
from dlcpd.core.session.stream_ids import OperationId
from dlcpd.core.transfer.packetizer import all_of_tag, by_tag, natural_order, segment_count
from dlcpd.core.transfer.sender import SenderState, TransferSender
from dlcpd.core.wire.bitmap import Segments
from dlcpd.core.wire.datagram import Bytes
from dlcpd.core.wire.header import Key
from dlcpd.schedules.model import Buffer, Program, Send

Tags = NDArray[np.uint8]  # by segment: traffic class and drop precedence

SMALL: Final = 16 << 10  # bytes to one peer that go out with READY: under the smallest window


@dataclass(slots=True, eq=False, repr=False)
class Sends:
    """Transfers that one operation owes its peers. A send is named by its position."""

    id: OperationId
    order: Order
    progress: Progress
    buffers: Buffers
    flows: Mapping[int, Flow]  # by rank in the session
    segment_sizes: Mapping[int, int]  # by receiver
    ready_ranks: set[int]  # of the operation, shared: ranks whose READY agreed
    loss: Bounded | None
    program: Program = field(init=False)
    senders: dict[int, TransferSender] = field(default_factory=dict)  # of sends that began
    _carried: dict[int, tuple[int, ...]] = field(default_factory=dict)  # by rank: sends that READY
    # replaces
    _copies: dict[int, bytes] = field(default_factory=dict)  # of their data, by send
    _blocked: dict[int, list[tuple[int, Send]]] = field(default_factory=dict)  # by rank

    def __post_init__(self) -> None:
        self.program = self.progress.program

    def carry(self, may_carry: Callable[[int, str, int], bool]) -> AbstractSet[int]:
        """Let READY carry the data to each peer that `may_carry(rank, terms, size)` names. They are
        copied, so their sends are done as they begin. Returns the ranks of those peers."""
        for peer, positions in self.program.carriable.items():
            rank, size = self.order.group.members[peer], self.program.outgoing[peer]
            if may_carry(rank, self.order.terms, size):
                self._carried[rank] = positions
        return self._carried.keys()

    def carried(self, rank: int) -> bytes | None:
        """The data that READY carries to `rank`, once their sends have begun; None: no data."""
        positions = self._carried.get(rank)
        if positions is None:
            return None
        return b"".join([self._copies[position] for position in positions])

    def begin(self, position: int, step: Send) -> bool:
        """Send once the peer's READY agreed. Small transfers go out with READY: ranks of a job are
        mostly in step, so the peer can take them. A peer that cannot keeps them, or reports by a
        LATE READY that it did not. True: READY carries the data, and the send is done."""
        rank = self.order.group.members[step.peer]
        if rank in self._carried:
            self._copies[position] = self.buffers.bytes_of(step.span).tobytes()
            return True
        if self.program.outgoing[step.peer] <= SMALL or rank in self.ready_ranks:
            self._send(position, step, rank, self.buffers.bytes_of(step.span))
        else:
            self._blocked.setdefault(rank, []).append((position, step))
        return False

    def send_apart(self, rank: int) -> tuple[int, ...]:
        """READY did not bring its data to `rank`: send the copy as DATA. Returns the sends."""
        positions = self._carried.pop(rank)
        for position in positions:
            step = self.program.steps[position]
            assert isinstance(step, Send)  # noqa: S101  # Program.carriable holds no others
            self._send(position, step, rank, np.frombuffer(self._copies[position], np.uint8))
        return positions

    def on_ready(self, rank: int, *, late: bool) -> None:
        """The READY of `rank` agreed: send the transfers that waited for it. `late`: send again
        the transfers that were sent before."""
        if late:
            peer, steps = self.order.group.index[rank], self.program.steps
            for position, sender in list(self.senders.items()):
                step = steps[position]
                if isinstance(step, Send) and step.peer == peer:
                    self.flows[rank].resend(sender)
        for position, step in self._blocked.pop(rank, []):
            self._send(position, step, rank, self.buffers.bytes_of(step.span))

    def withdraw(self, rank: int) -> list[int]:
        """`rank` takes nothing more. Returns the sends that still waited for its READY."""
        return [position for position, _ in self._blocked.pop(rank, [])]

    def acknowledge(
        self, rank: int, positions: tuple[int, ...], now: float, *, whole: bool
    ) -> None:
        """`rank` must have received these sends before the transfer that it sends now. Until that
        has arrived as a `whole`, this is believed only of sends whose pass has ended. `rank` says
        itself what it has waived of those with a permit."""
        for position in positions:
            sender = self.senders.get(position)
            if sender is None or sender.permit is not None:
                continue
            if whole or sender.state is SenderState.AWAITING:
                self.flows[rank].outgoing.acknowledge(sender.key, now)

    @property
    def unsettled(self) -> bool:
        """Whether a peer may have waived segments, and has not said so yet."""
        return any(
            sender.permit is not None and sender.state is not SenderState.DONE
            for sender in self.senders.values()
        )

    def stats(self) -> Stats:
        """Counts of the operation's segments."""
        senders, loss = self.senders, self.loss
        sent = 0
        for at in self.program.own:
            sender = senders.get(at)
            sent += at in self._copies if sender is None else sender.segments
        retransmitted = sum([sender.retransmitted for sender in senders.values()])
        if loss is None:
            return Stats(sent, retransmitted)
        energy = 0.0 if self.order.layers.lossless else loss.energy
        allowed = sum(s.budget.total for s in senders.values() if s.budget is not None)
        return Stats(sent, retransmitted, loss.waived, loss.reapplied, loss.lost, energy, allowed)

    def _send(self, position: int, step: Send, rank: int, data: Bytes) -> None:
        size = self.segment_sizes[rank]
        sender = self.senders[position] = self._sender(position, step, data, size)
        if sender.permit is not None:
            self.progress.hold(position)
        self.flows[rank].send(sender)

    def _sender(self, position: int, step: Send, data: Bytes, segment_size: int) -> TransferSender:
        stretch, options = stretch_of(self.order, step), dict[str, Any]()
        if step.lossy and self.loss is not None and not self.order.layers.lossless:
            marks = self.loss.marks(position, stretch, segment_size)
            classes = stretch.layers.classes_of(stretch.start, stretch.size, segment_size)
            tags = classes * np.uint8(DROP_PRECEDENCES) + marks.drop_precedences
            order = by_tag(marks.order, tags)
            options = {"weight": marks.weight, "budget": marks.budget, "permit": marks.permit}
        else:
            tags, order = _protected(stretch, segment_size)
        urgent = self.order.exclusive and step.span.buffer == Buffer.OUTPUT
        # Results that clients computed are needed later than contributions to others. Backward
        # passes bring the last layers first, and the next forward pass needs the first ones first.
        computed = self.order.computes and (step.span.buffer == Buffer.OUTPUT or step.encodes > 0)
        return TransferSender(
            Key(self.id[0], self.id[2], step.index),
            data,
            step.origin,
            segment_size,
            tags,
            order,
            urgent=urgent,
            yields=computed,
            **options,
        )


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
