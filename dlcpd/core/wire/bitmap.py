"""Segment bitmaps: bool arrays inside, little-endian packed bits on the wire."""

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.bool_]
Segments = NDArray[np.intp]


def pack_bits(bits: Bits) -> bytes:
    """ceil(n / 8) bytes; bit i of the stream is element i."""
    return np.packbits(bits, bitorder="little").tobytes()


def indices(bits: Bits) -> Segments:
    """Positions of the set bits, ascending."""
    return np.flatnonzero(bits)


def bits_of(segments: Segments, count: int) -> Bits:
    """Inverse of `indices`, of `count` segments."""
    bits = np.zeros(count, bool)
    bits[segments] = True
    return bits
