"""Codec of an operation on one rank, and the residual that it leaves for the next operation."""

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
    """Codec of one operation. Parts of the tensor are identified by their first byte.

    The residual of a part is the rounding errors of its codec and the values of its waived
    segments: both go to the next operation of the name (P4). Where clients compute the results,
    which alone are encoded, nothing is kept: the clients have the exact values.
    """

    order: Order
    codec: Codec
    spare: ScratchPool
    _left: dict[int, Array] = field(default_factory=dict)  # by part
    _averages: set[int] = field(default_factory=set)  # parts of a result that is an average
    _waived: dict[int, int] = field(default_factory=dict)  # by part: segments

    @classmethod
    def of(cls, order: Order, spare: ScratchPool) -> Self | None:
        """None if the operation has no codec."""
        return None if order.codec is None else cls(order, order.codec, spare)

    def contribute(self, part: Bytes, wire: Bytes, start: int) -> Iterator[int]:
        """Encode a part of the contribution; yields the bytes of each piece of the work."""
        left = self._room(start, len(part))
        return coding.encode(self.codec, self.order.dtype, part, wire, left)

    def round(self, result: Bytes, wire: Bytes, start: int) -> None:
        """Encode a result, and overwrite it with the values that all ranks decode."""
        left = self._room(start, len(result))
        work = coding.encode(self.codec, self.order.dtype, result, wire, left, rounds=True)
        deque(work, maxlen=0)
        if self.order.reduce == "avg":
            self._averages.add(start)

    def decode(self, wire: Bytes, part: Bytes) -> None:
        """Inverse of `contribute` and `round`, except for rounding errors."""
        coding.decode(self.codec, self.order.dtype, wire, part)

    def energies(self, wire: Bytes, size: int, segment_size: int) -> tuple[Energies, int]:
        """Energies of the segments of `size` bytes of the tensor; number of those of the head."""
        count = size // STORAGE[self.order.dtype].itemsize
        return coding.wire_energies(self.codec, count, wire, segment_size)

    def waive(self, sender: TransferSender, segments: Segments) -> None:
        """Add the values of waived segments to the residual."""
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
        """The residuals of all parts. That of an average counts once per rank."""
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
        """Memory for the residual of a part; None if it is not kept."""
        if not self.order.loss.feedback or self.order.computes:
            return None
        kind, count = wide(self.order.dtype), size // STORAGE[self.order.dtype].itemsize
        left = self._left[start] = self.spare.take(count * kind.itemsize).view(kind)
        return left
