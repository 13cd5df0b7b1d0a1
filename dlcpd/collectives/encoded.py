"""What an operation's codec does on one rank, and what it leaves over for the next operation."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from dlcpd.collectives.order import Order
from dlcpd.collectives.scratch import ScratchPool
from dlcpd.core.transfer.sender import TransferSender
from dlcpd.core.wire.bitmap import Segments
from dlcpd.core.wire.datagram import Bytes
from dlcpd.numerics.codecs import coding
from dlcpd.numerics.codecs.codec import Codec
from dlcpd.numerics.elements import STORAGE
from dlcpd.numerics.magnitude import Energies
from dlcpd.numerics.residual import Hole, add_values, multiply_values


@dataclass(slots=True, eq=False)
class Encoded:
    """Of one operation. Parts of the tensor are known by the byte at which they begin.

    What is left over of a part is what its codec rounded away, and the values of its segments
    that were given up: both go to the next operation of the name (P4).
    """

    order: Order
    codec: Codec
    spare: ScratchPool
    _left: dict[int, Bytes] = field(default_factory=dict)  # by part
    _given_up: dict[int, int] = field(default_factory=dict)  # by part: segments

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
        if left is not None and self.order.reduce == "avg":  # a part of the sum, as it will be
            multiply_values(left, self.order.dtype, self.order.group.size)

    def decode(self, wire: Bytes, part: Bytes) -> None:
        """Inverse of `contribute` and `round`, but for what was left over."""
        coding.decode(self.codec, self.order.dtype, wire, part)

    def energies(self, wire: Bytes, size: int, segment_size: int) -> tuple[Energies, int]:
        """Of the segments of `size` bytes of the tensor, and how many of them are the head."""
        count = size // STORAGE[self.order.dtype].itemsize
        return coding.wire_energies(self.codec, count, wire, segment_size)

    def give_up(self, sender: TransferSender, segments: Segments) -> None:
        """The peer goes without these."""
        left = self._left.get(sender.origin)
        if left is None:
            return
        values = coding.lost_values(
            self.codec, self.order.dtype, sender.payload, len(left), segments,
            segment_size=sender.segment_size,
        )  # fmt: skip
        add_values(left, values, self.order.dtype)
        self._given_up[sender.origin] = len(segments)

    def holes(self) -> list[Hole]:
        """All that is left over."""
        scale, source, whole = self.order.loss.scale, self.order.ticket, np.zeros(1, np.intp)
        return [
            Hole(start, whole, len(left), left, scale, source, self._given_up.get(start, 0))
            for start, left in self._left.items()
        ]

    def _room(self, start: int, size: int) -> Bytes | None:
        """For what is left over of a part, where it is kept."""
        if not self.order.loss.feedback:
            return None
        left = self._left[start] = self.spare.take(size)
        return left
