"""The bytes of one transfer, and which layers and exempt ranges they belong to."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlcpd.collectives.order import Order
from dlcpd.contract.sized_cache import SizedCache
from dlcpd.core.transfer.layers import Layers
from dlcpd.numerics.codecs.codec import Codec, body_at
from dlcpd.numerics.elements import STORAGE
from dlcpd.schedules.model import Transfer

Ranges = tuple[tuple[int, int], ...]  # [start, stop) in bytes


class Stretch(NamedTuple):
    """`size` bytes from byte `start` of the bytes that `layers` and `exempt` describe."""

    layers: Layers
    exempt: Ranges
    start: int
    size: int


def stretch_of(order: Order, step: Transfer) -> Stretch:
    """The bytes that a transfer of an operation carries, encoded or not."""
    plain = Stretch(order.layers, order.loss.exempt, step.origin, step.encodes or step.span.size)
    if order.codec is None or not step.encodes:
        return plain
    return on_the_wire(plain, order.codec, STORAGE[order.dtype].itemsize)


def _rows(made: Stretch) -> int:
    """Rows of a cached stretch: 130 B each, so 34 MB at most."""
    return len(made.exempt) + len(made.layers.starts) + 1


@SizedCache(most=1 << 18, size=_rows)
def on_the_wire(plain: Stretch, codec: Codec, item: int) -> Stretch:
    """The stretch of `plain`, of a tensor with elements of `item` bytes, encoded by `codec`.

    The head comes first and is never waived. A part of the body that holds values of several
    layers belongs to the last of them, and is exempt.
    """
    layers, exempt, start, size = plain
    count = size // item
    head = body_at(codec, count)
    places = _Places(codec, item, head, head + codec.body(count))
    first = int(np.searchsorted(layers.starts, start, side="right")) - 1
    rows = slice(first, int(np.searchsorted(layers.starts, start + size)))
    begins = np.maximum(layers.starts[rows] - start, 0)
    starts, inside = places.of(begins), places.in_the_midst_of_a_part(begins)
    shared = tuple((at, at + codec.grain.size) for at in starts[inside].tolist())
    kept = np.append(np.diff(starts) > 0, True)  # numpy's way to add an element
    classes, bounds = layers.classes[rows], layers.bounds[rows]
    found = starts[kept], classes[kept], bounds[kept]
    if head:
        beginning = [0], [classes.min()], [0]
        found = tuple(  # type: ignore[assignment]  # mypy: of any length
            np.append(a, b) for a, b in zip(beginning, found, strict=True)
        )
    return Stretch(_layers(*found), shared + places.ranges(exempt, start, size), 0, places.stop)


class _Places(NamedTuple):
    """Where the values of a transfer's tensor lie on the wire."""

    codec: Codec
    item: int
    head: int
    stop: int

    def of(self, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """First wire bytes of the parts that hold the elements at these bytes of the transfer."""
        values, size = self.codec.grain
        return self.head + offsets // self.item // values * size

    def in_the_midst_of_a_part(self, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether the part begins with an earlier element."""
        found: NDArray[np.bool_] = offsets // self.item % self.codec.grain.values > 0
        return found

    def ranges(self, exempt: Ranges, start: int, size: int) -> Ranges:
        """Wire bytes of the parts that hold any byte of `exempt`."""
        values, part = self.codec.grain
        found = []
        for low, high in exempt:
            a, b = max(low - start, 0), min(high - start, size)
            if a < b:
                parts = a // self.item // values, -(-b // (self.item * values))
                last = min(self.head + parts[1] * part, self.stop)
                found.append((self.head + parts[0] * part, last))
        return tuple(found)


def _layers(
    starts: NDArray[np.int64], classes: NDArray[np.uint8], bounds: NDArray[np.int64]
) -> Layers:
    return Layers(starts.astype(np.int64), classes.astype(np.uint8), bounds.astype(np.int64))
