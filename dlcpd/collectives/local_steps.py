"""The steps of one operation that need no peer: reductions, and the steps of a codec."""

from dataclasses import dataclass, field

from dlcpd.collectives.buffers import Buffers
from dlcpd.collectives.loss.encoded import Encoded
from dlcpd.collectives.order import Order
from dlcpd.collectives.progress import Progress
from dlcpd.collectives.segment_sum import SegmentSum, may_add
from dlcpd.core.transfer.incoming import Incoming
from dlcpd.numerics.canonical import make_canonical
from dlcpd.numerics.reduce import reduce_in_order
from dlcpd.schedules.model import NOT_REPLICATED, Decode, Encode, Part, Reduce


@dataclass(slots=True, eq=False)
class LocalSteps:
    """Computes over the buffers of one operation."""

    order: Order
    progress: Progress
    buffers: Buffers
    encoded: Encoded | None  # if the operation has a codec
    _sums: dict[int, SegmentSum] = field(default_factory=dict)  # by reduction: begun early

    def reduce(self, position: int, step: Reduce) -> None:
        """Reduce in rank order, or finish the sum that io began while operands arrived."""
        begun = self._sums.pop(position, None)
        if begun is not None:
            begun.finish()
        else:
            order, bytes_of = self.order, self.buffers.bytes_of
            reduce_in_order(
                bytes_of(step.target),
                [bytes_of(span) for span in step.operands],
                order.dtype,
                order.reduce,
                divide_by=self._divisor(step),
            )
        if step.last and self.progress.program.alone and step.piece != NOT_REPLICATED:
            # all ranks compute it
            make_canonical(self.buffers.bytes_of(step.target), self.order.dtype)

    def change_form(self, step: Encode | Decode) -> None:
        """Decode, or encode a result: contributions were encoded before the operation began."""
        encoded = self.encoded
        assert encoded is not None  # noqa: S101  # programs encode where the order has a codec
        source, target = self.buffers.bytes_of(step.source), self.buffers.bytes_of(step.target)
        if isinstance(step, Decode):
            encoded.decode(source, target)
        elif step.rounds:
            encoded.round(source, target, step.source.start)

    def add_up(self, incoming: Incoming, part: Part) -> None:
        """Let io add `incoming` to the other operands as it arrives, if segment sizes are equal."""
        order, size = self.order, incoming.segment_size
        if not may_add(order.dtype, order.reduce, size):
            return
        found = self._sums.get(part.reduction)
        if found is None:
            step = self.progress.program.steps[part.reduction]
            assert isinstance(step, Reduce)  # noqa: S101  # see model.Part
            divide_by = self._divisor(step)
            if divide_by != int(divide_by):  # in the last of several stages
                return
            found = self._sums[part.reduction] = SegmentSum(
                self.buffers.bytes_of(step.target),
                [self.buffers.bytes_of(span) for span in step.operands],
                part.coming,
                size,
                int(divide_by),
            )
        if found.segment_size == size:
            incoming.sum, incoming.operand = found, part.operand
            incoming.last = self.progress.waits[part.reduction] == 1

    def _divisor(self, step: Reduce) -> float:
        return step.divisor(self.order.reduce, self.order.group.size)
