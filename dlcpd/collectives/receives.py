"""The receives of one operation: the place of the data, or scratch memory while it is not free."""

from dataclasses import dataclass, field

from dlcpd.collectives.buffers import Buffers
from dlcpd.collectives.local_steps import LocalSteps
from dlcpd.collectives.loss.bounded import Bounded
from dlcpd.collectives.loss.stretch import stretch_of
from dlcpd.collectives.order import Order
from dlcpd.collectives.progress import Progress
from dlcpd.core.session.stream_ids import OperationId
from dlcpd.core.transfer.incoming import Incoming
from dlcpd.core.transfer.packetizer import segment_count
from dlcpd.core.transfer.receiver import TransferReceiver
from dlcpd.core.wire.datagram import Bytes
from dlcpd.core.wire.header import MAX_SEGMENTS, Key
from dlcpd.schedules.model import Receive


@dataclass(slots=True, eq=False)
class Receives:
    """Transfers that the peers of one operation owe it. A receive is named by its position."""

    id: OperationId
    order: Order
    progress: Progress
    buffers: Buffers
    local: LocalSteps
    loss: Bounded | None
    staged: dict[int, Bytes]  # data of complete transfers whose place is not free
    segment_sizes: dict[int, int] = field(default_factory=dict)  # by rank whose READY agreed
    _aside: set[int] = field(default_factory=set)  # receives whose data go to scratch memory first

    def implied(self, rank: int, key: Key) -> tuple[int, ...]:
        """Sends that a transfer acknowledges as it begins to arrive; none if it is not awaited."""
        position = self.progress.program.receives.get((self.order.group.index[rank], key.transfer))
        if position not in self.progress.open or position in self.staged:
            return ()
        step = self.progress.program.steps[position]
        assert isinstance(step, Receive)  # noqa: S101  # Program.receives holds no others
        return step.implies if rank in self.segment_sizes else ()

    def open(self, rank: int, key: Key) -> Incoming | str:
        """The place for a transfer from `rank`, or the reason to discard it.

        Raises: ArenaFull if the daemon has no memory for it; then the operation must fail.
        """
        position = self.progress.program.receives.get((self.order.group.index[rank], key.transfer))
        if position is None:
            return "transfer"
        segment_size = self.segment_sizes.get(rank)
        if segment_size is None:
            return "unready"  # no data count before both have agreed on the operation
        if position not in self.progress.open or position in self.staged:
            return "duplicate"
        step = self.progress.program.steps[position]
        assert isinstance(step, Receive)  # noqa: S101  # Program.receives holds no others
        if segment_count(step.span.size, segment_size) > MAX_SEGMENTS:
            return "segment"  # the peer's READY names segments that no bitmap could list
        self._check_room(position, step)
        receiver = self._receiver(step, segment_size)
        if self.progress.waits[position]:
            self._aside.add(position)
            buffer = self.buffers.take(step.span.size)
            return Incoming(key, rank, receiver, buffer, segment_size)
        incoming = Incoming(key, rank, receiver, self.buffers.bytes_of(step.span), segment_size)
        part = self.progress.program.parts.get(position)
        if part is not None and not (step.lossy and self.loss is not None):
            self.local.add_up(incoming, part)
        return incoming

    def take(self, position: int, step: Receive, data: Bytes) -> bool:
        """A peer's READY has carried a transfer. Returns as `put`; raises as `open`."""
        self._check_room(position, step)
        if self.progress.waits[position]:
            self.staged[position] = buffer = self.buffers.take(step.span.size)
            buffer[:] = data
            return False
        self.buffers.bytes_of(step.span)[:] = data
        return True

    def put(self, position: int, step: Receive, incoming: Incoming) -> bool:
        """A transfer is complete. True: its data are in their place. False: they stay in scratch
        memory until `unstage`."""
        if self.progress.waits[position]:
            self.staged[position] = incoming.buffer
            return False
        if position in self._aside:  # its place became free while it arrived
            self._move(step, incoming.buffer)
        return True

    def unstage(self, position: int, step: Receive) -> bool:
        """The place of a transfer is free now. True: its staged data have moved there."""
        buffer = self.staged.pop(position, None)
        if buffer is not None:
            self._move(step, buffer)
        return buffer is not None

    def _move(self, step: Receive, buffer: Bytes) -> None:
        """Move received data from scratch memory to their place."""
        self.buffers.bytes_of(step.span)[:] = buffer
        self.buffers.give(buffer)

    def _check_room(self, position: int, step: Receive) -> None:
        """Raises: ArenaFull if the data would need memory that the daemon does not have."""
        size = step.span.size
        if not self.progress.waits[position]:
            size = self.buffers.absent(step.span)
            if not size:
                return
            part = self.progress.program.parts.get(position)
            size *= part.coming if part is not None else 1
        holdings = self.buffers.holdings
        if not holdings.has_room(size):
            raise holdings.lack(size, f"what arrives for {self.order.label(self.id)}")

    def _receiver(self, step: Receive, segment_size: int) -> TransferReceiver:
        stretch = stretch_of(self.order, step)
        layers, _, start, size = stretch
        last_class, budget = layers.last_class(start, size, segment_size), None
        if step.lossy and self.loss is not None:
            budget = self.loss.budget(stretch, segment_size)
        return TransferReceiver(segment_count(size, segment_size), last_class, budget)
