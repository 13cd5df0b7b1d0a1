"""The largest values and where they are; the others are sent as nothing, and rounded away.

The same share of each block, so that a block has its place on the wire before anybody has seen
its values. Source: Stich, Cordonnier, Jaggi: Sparsified SGD with Memory, NeurIPS 2018.
"""

from math import ceil
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.contract.codec import CodecName
from dlcpd.core.wire.datagram import Bytes
from dlcpd.numerics.codecs.codec import Grain, Numbers

BLOCK: Final = 1 << 12  # values: places have 16 bits, and a hundredth of a block is 41 of them
_PLACE: Final = np.dtype("<u2")  # in its block
_VALUE: Final = np.dtype("<f4")


class TopK:
    """Keeps `fraction` of the values of each block, at least one, bit by bit.

    NaN and infinity are larger than any number. Places are sorted; of values of equal magnitude
    any may be kept, but always the same.
    """

    block, item = BLOCK, _VALUE.itemsize

    def __init__(self, name: str, fraction: float) -> None:
        self.name, self._fraction = name, fraction
        self.grain = Grain(BLOCK, self.item * self._kept(BLOCK))

    def _kept(self, values: int) -> int:
        """Of a block."""
        return ceil(self._fraction * values)

    def _all_kept(self, count: int) -> int:
        whole, rest = divmod(count, BLOCK)
        return whole * self._kept(BLOCK) + self._kept(rest)

    def head(self, count: int) -> int:
        return _PLACE.itemsize * self._all_kept(count)

    def body(self, count: int) -> int:
        return self.item * self._all_kept(count)

    def encode(self, numbers: Numbers, head: Bytes, body: Bytes) -> None:
        places, values = head.view(_PLACE), body.view(_VALUE)
        at = 0
        for rows in _runs(numbers):
            kept = self._kept(rows.shape[1])
            chosen = _places_of_largest(rows, kept)
            here = slice(at, at + chosen.size)
            places[here] = chosen.reshape(-1)
            values[here] = np.take_along_axis(rows, chosen, axis=1).reshape(-1)
            at += chosen.size

    def decode(self, head: Bytes, body: Bytes, numbers: Numbers) -> None:
        numbers[:] = 0
        places, values = head.view(_PLACE), body.view(_VALUE)
        at = 0
        for rows in _runs(numbers):
            shape = len(rows), self._kept(rows.shape[1])
            here = slice(at, at + shape[0] * shape[1])
            # who sends what has no such place only harms the sum that it takes part in
            chosen = np.minimum(places[here].reshape(shape), rows.shape[1] - 1).astype(np.intp)
            np.put_along_axis(rows, chosen, values[here].reshape(shape), axis=1)
            at += here.stop - here.start

    def items(self, head: Bytes, body: Bytes, count: int) -> Numbers:
        return body.view(_VALUE)


def _runs(numbers: Numbers) -> list[Numbers]:
    """Whole blocks, one in each row, and then what is left. Views."""
    whole = len(numbers) // BLOCK * BLOCK
    runs = [numbers[:whole].reshape(-1, BLOCK), numbers[whole:].reshape(1, -1)]
    return [run for run in runs if run.size]


def _places_of_largest(rows: Numbers, kept: int) -> NDArray[np.intp]:
    """By row the places of the `kept` values of largest magnitude, ascending."""
    least = rows.shape[1] - kept
    chosen = np.argpartition(np.abs(rows), least, axis=1)[:, least:]  # NaN comes after all others
    chosen.sort(axis=1)
    return chosen


def codec(wanted: CodecName) -> TopK:
    """For `dlcpd.contract.codec.KINDS`."""
    return TopK(str(wanted), wanted.fraction)
