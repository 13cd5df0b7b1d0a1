"""Values of 8 bits, with a scale for each block: its largest magnitude becomes the largest code.

A scale is a float32 in the head. A block whose magnitudes are all too small for a float32 scale
(below 2**-126 times the largest code) has the scale 0: all of it is rounded to zeros.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from dlcpd.core.wire.datagram import Bytes
from dlcpd.numerics.codecs.codec import Grain, Numbers

BLOCK: Final = 256  # values that share a scale of 4 bytes: 1.6 % more than the codes alone
_SCALE: Final = np.dtype("<f4")
_LEAST: Final = np.float32(2.0**-126)  # of a scale: its inverse is finite, and no digit is lost
# Limit of a scale times the largest code: no value is rounded up beyond float32.
_MOST: Final = np.float32(float.fromhex("0x1.ff8p127"))

Codes = Callable[[Numbers], Bytes]  # of values within the largest code, NaN and infinity
Values = Callable[[Bytes], Numbers]  # its inverse; a new array


class BlockScaled:
    """`largest`: the magnitude of the largest code. Code 0 is the value 0."""

    block, item, grain = BLOCK, 1, Grain(1, 1)

    def __init__(self, name: str, largest: float, codes: Codes, values: Values) -> None:
        self.name, self._largest = name, np.float32(largest)
        self._codes, self._values = codes, values

    def head(self, count: int) -> int:
        return _SCALE.itemsize * -(-count // BLOCK)

    def body(self, count: int) -> int:
        return count

    def encode(self, numbers: Numbers, head: Bytes, body: Bytes) -> None:
        grid = _grid(numbers)
        scales = self._scales(grid)
        head.view(_SCALE)[:] = scales
        with np.errstate(all="ignore"):
            inverse = np.where(scales == 0, np.float32(0), np.float32(1) / scales)
            # infinity times 0 is NaN, which is as good: the value was not finite
            scaled = (grid * inverse[:, None]).reshape(-1)
        body[:] = self._codes(scaled)[: len(body)]

    def decode(self, head: Bytes, body: Bytes, numbers: Numbers) -> None:
        numbers[:] = self.items(head, body, len(numbers))

    def items(self, head: Bytes, body: Bytes, count: int) -> Numbers:
        grid = _grid(self._values(body))
        with np.errstate(invalid="ignore"):
            grid *= head.view(_SCALE)[:, None]
        return grid.reshape(-1)[:count]

    def _scales(self, grid: Numbers) -> Numbers:
        """Largest finite magnitude of each block, divided by the largest code."""
        magnitude = np.abs(grid)
        peaks = magnitude.max(axis=1)
        if not np.isfinite(peaks).all():
            peaks = np.where(np.isfinite(magnitude), magnitude, np.float32(0)).max(axis=1)
        scales: Numbers = np.minimum(peaks, _MOST) / self._largest
        scales[scales < _LEAST] = 0
        return scales


def _grid(numbers: Numbers) -> Numbers:
    """One block per row; the last is filled up with zeros."""
    rest = -len(numbers) % BLOCK
    if rest:
        numbers = np.concatenate([numbers, np.zeros(rest, np.float32)])
    return numbers.reshape(-1, BLOCK)
