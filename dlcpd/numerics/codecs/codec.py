"""Interface of codecs, and the layout of a transfer's encoded values on the wire.

A transfer begins with a head, all of which must arrive: scales, or places of values. Then comes
a body that may lose any of its segments: missing bytes count as zero, and zero bytes are
values 0, whatever the head has. So a lost segment affects only its own values.
"""

from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dlcpd.core.wire.datagram import Bytes

Numbers = NDArray[np.float32]
PIECE: Final = 1 << 16  # values coded at once, a multiple of every block: they stay in a cache
_ALIGNMENT: Final = 8  # bytes: where a body begins, so that no value of it lies in two segments


class Grain(NamedTuple):
    """The smallest part of a body that holds the values of a range known without its bytes."""

    values: int
    size: int  # bytes


class Codec(Protocol):
    """Values are coded block by block, and only the last block may be short. Coding is pure:
    equal values give equal bytes, and equal bytes equal values, on every machine.

    A value that is NaN or infinite is decoded as one that is NaN or infinite. A finite value
    stays finite: one beyond the codec's range becomes the last value in the range.
    """

    name: str  # see dlcpd.contract.codec
    block: int  # values; divides PIECE
    item: int  # bytes of a value in the body
    grain: Grain

    def head(self, count: int) -> int:
        """Bytes of the head of `count` values, equally many for each full block."""

    def body(self, count: int) -> int:
        """Bytes of the body of `count` values, equally many for each full block."""

    def encode(self, numbers: Numbers, head: Bytes, body: Bytes) -> None:
        """Write `numbers`, from the start of a block on, to their bytes of head and body."""

    def decode(self, head: Bytes, body: Bytes, numbers: Numbers) -> None:
        """Inverse of `encode`, except for rounding errors."""

    def __hash__(self) -> int:
        """Hash of the object: codecs are keys of caches."""

    def items(self, head: Bytes, body: Bytes, count: int) -> Numbers:
        """The values in `body`, `item` bytes for each, as numbers."""


class Piece(NamedTuple):
    """Where a run of blocks lies: slices of the values, of the head and of the body."""

    values: slice
    head: slice
    body: slice


def body_at(codec: Codec, count: int) -> int:
    """Where the body of `count` values begins on the wire."""
    return -(-codec.head(count) // _ALIGNMENT) * _ALIGNMENT


def wire_size(codec: Codec, count: int) -> int:
    """Bytes of `count` values on the wire."""
    return body_at(codec, count) + codec.body(count)


def pieces(codec: Codec, count: int) -> list[Piece]:
    """The pieces of `count` values, in their order."""
    found = []
    for start in range(0, count, PIECE):
        stop = min(start + PIECE, count)
        head = slice(codec.head(start), codec.head(stop))
        found.append(Piece(slice(start, stop), head, slice(codec.body(start), codec.body(stop))))
    return found
