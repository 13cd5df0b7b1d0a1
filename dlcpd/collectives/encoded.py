"""What an operation's codec does on one rank, and what it leaves over for the next operation."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

from dlcpd.collectives.order import Order
from dlcpd.collectives.scratch import ScratchPool
from dlcpd.core.transfer.sender import TransferSender
from dlcpd.core.wire.bitmap import Segments
from dlcpd.core.wire.datagram import Bytes
from dlcpd.numerics.codecs import coding
from dlcpd.numerics.codecs.codec import Codec
from dlcpd.numerics.elements import STORAGE, Array, wide
from dlcpd.numerics.magnitude import Energies
from dlcpd.numerics.residual import WHOLE, Hole


@dataclass(slots=True, eq=False)
class Encoded:
    """Of one operation. Parts of the tensor are known by the byte at which they begin.

    What is left over of a part is what its codec rounded away, and the values of its segments
    that were waived: both go to the next operation of the name (P4).
    """

    order: Order
    codec: Codec
    spare: ScratchPool
    _left: dict[int, Array] = field(default_factory=dict)  # by part
    _averages: set[int] = field(default_factory=set)  # parts of a result that is an average
    _waived: dict[int, int] = field(default_factory=dict)  # by part: segments

    @classmethod
    def of(cls, order: Order, spare: ScratchPool) -> Self | None:
        """None where values cross as they are."""
        return None if order.codec is None else cls(order, order.codec, spare)

    def contribute(self, part: Bytes, wire: Bytes, start: int) -> Iterator[int]:
        """Encode what this rank contributes; yields the bytes of each piece of the work."""
        left = self._room(start, len(part))
        return coding.encode(self.codec, self.order.dtype, part, wire, left)

    def round(self, result: Bytes, wire: Bytes, start: int) -> None:
        """Encode a result, which becomes what all ranks decode."""
        left = self._room(start, len(result))
        work = coding.encode(self.codec, self.order.dtype, result, wire, left, rounds=True)
        deque(work, maxlen=0)
        if self.order.reduce == "avg":
            self._averages.add(start)

    def decode(self, wire: Bytes, part: Bytes) -> None:
        """Inverse of `contribute` and `round`, but for what was left over."""
        coding.decode(self.codec, self.order.dtype, wire, part)

    def energies(self, wire: Bytes, size: int, segment_size: int) -> tuple[Energies, int]:
        """Of the segments of `size` bytes of the tensor, and how many of them are the head."""
        count = size // STORAGE[self.order.dtype].itemsize
        return coding.wire_energies(self.codec, count, wire, segment_size)

    def waive(self, sender: TransferSender, segments: Segments) -> None:
        """The peer goes without these."""
        left = self._left.get(sender.origin)
        if left is None:
            return
        left += coding.lost_values(
            self.codec,
            self.order.dtype,
            sender.payload,
            len(left),
            segments,
            segment_size=sender.segment_size,
        )
        self._waived[sender.origin] = len(segments)

    def holes(self) -> list[Hole]:
        """All that is left over. Of an average it counts for each of the ranks."""
        order, size = self.order, STORAGE[self.order.dtype].itemsize
        scale = order.loss.scale
        return [
            Hole(
                start,
                WHOLE,
                size * len(left),
                left,
                scale / order.group.size if start in self._averages else scale,
                order.ticket,
                self._waived.get(start, 0),
                coded=True,
            )
            for start, left in self._left.items()
        ]

    def _room(self, start: int, size: int) -> Array | None:
        """For what is left over of a part, where it is kept."""
        if not self.order.loss.feedback:
            return None
        kind, count = wide(self.order.dtype), size // STORAGE[self.order.dtype].itemsize
        left = self._left[start] = self.spare.take(count * kind.itemsize).view(kind)
        return left
