"""The sends of one operation: their senders, and the sends that wait for a peer's READY."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.collectives.buffers import Buffers
from dlcpd.collectives.loss.bounded import Bounded
from dlcpd.collectives.loss.stretch import Stretch, stretch_of
from dlcpd.collectives.order import Order
from dlcpd.contract.traffic import DROP_PRECEDENCES, PROTECTED
from dlcpd.core.session.events import Stats
from dlcpd.core.session.flow import Flow
from dlcpd.core.session.stream_ids import OperationId
from dlcpd.core.transfer.packetizer import all_of_tag, by_tag, natural_order, segment_count
from dlcpd.core.transfer.sender import SenderState, TransferSender
from dlcpd.core.wire.bitmap import Segments
from dlcpd.core.wire.header import Key
from dlcpd.schedules.model import Buffer, Program, Send

Tags = NDArray[np.uint8]  # by segment: traffic class and drop precedence

SMALL: Final = 16 << 10  # bytes to one peer that go out with READY: under the smallest window


@dataclass(slots=True, eq=False)
class Sends:
    """Transfers that one operation owes its peers. A send is named by its position."""

    id: OperationId
    order: Order
    program: Program
    buffers: Buffers
    flows: Mapping[int, Flow]  # by rank in the session
    segment_sizes: Mapping[int, int]  # by receiver
    ready_ranks: set[int]  # of the operation, shared: ranks whose READY agreed
    loss: Bounded | None
    senders: dict[int, TransferSender] = field(default_factory=dict)  # of sends that began
    _blocked: dict[int, list[tuple[int, Send]]] = field(default_factory=dict)  # by rank

    def begin(self, position: int, step: Send) -> None:
        """Send once the peer's READY agreed. Small transfers go out with READY: ranks of a job are
        mostly in step, so the peer can take them. A peer that cannot keeps them, or reports by a
        LATE READY that it did not."""
        rank = self.order.group.members[step.peer]
        if self.program.outgoing[step.peer] <= SMALL or rank in self.ready_ranks:
            self._send(position, step, rank)
        else:
            self._blocked.setdefault(rank, []).append((position, step))

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
            self._send(position, step, rank)

    def withdraw(self, rank: int) -> list[int]:
        """`rank` takes nothing more. Returns the sends that still waited for its READY."""
        return [position for position, _ in self._blocked.pop(rank, [])]

    def acknowledge(
        self, rank: int, positions: tuple[int, ...], now: float, *, whole: bool
    ) -> None:
        """`rank` must have received these sends before the transfer that it sends now. Until that
        has arrived as a `whole`, this is believed only of sends whose pass has ended."""
        for position in positions:
            sender = self.senders.get(position)
            if sender is not None and (whole or sender.state is SenderState.AWAITING):
                self.flows[rank].outgoing.acknowledge(sender.key, now)

    def stats(self) -> Stats:
        """Counts of the operation's segments."""
        senders, loss = self.senders, self.loss
        sent = sum([senders[at].segments for at in self.program.own if at in senders])
        retransmitted = sum([sender.retransmitted for sender in senders.values()])
        if loss is None:
            return Stats(sent, retransmitted)
        energy = 0.0 if self.order.layers.lossless else loss.energy
        allowed = sum(s.budget.total for s in senders.values() if s.budget is not None)
        return Stats(sent, retransmitted, loss.waived, loss.reapplied, loss.lost, energy, allowed)

    def _send(self, position: int, step: Send, rank: int) -> None:
        sender = self.senders[position] = self._sender(position, step, self.segment_sizes[rank])
        self.flows[rank].send(sender)

    def _sender(self, position: int, step: Send, segment_size: int) -> TransferSender:
        stretch, options = stretch_of(self.order, step), dict[str, Any]()
        if step.lossy and self.loss is not None and not self.order.layers.lossless:
            marks = self.loss.marks(position, stretch, segment_size)
            classes = stretch.layers.classes_of(stretch.start, stretch.size, segment_size)
            tags = classes * np.uint8(DROP_PRECEDENCES) + marks.drop_precedences
            order = by_tag(marks.order, tags)
            options = {"weight": marks.weight, "budget": marks.budget}
        else:
            tags, order = _protected(stretch, segment_size)
        urgent = self.order.exclusive and step.span.buffer == Buffer.OUTPUT
        return TransferSender(
            Key(self.id[0], self.id[2], step.index),
            self.buffers.bytes_of(step.span),
            step.origin,
            segment_size,
            tags,
            order,
            urgent=urgent,
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
