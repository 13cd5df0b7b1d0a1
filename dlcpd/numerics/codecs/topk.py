"""Sends the largest values with their places; the others are not sent, and rounded to zero.

All blocks keep the same fraction, so that the place of a block on the wire does not depend on
values. Source: Stich, Cordonnier, Jaggi: Sparsified SGD with Memory, NeurIPS 2018.
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

    NaN and infinity are larger than any number. Places are sorted; which of several values of
    equal magnitude is kept is arbitrary, but always the same.
    """

    block, item = BLOCK, _VALUE.itemsize

    def __init__(self, name: str, fraction: float) -> None:
        self.name, self._fraction = name, fraction
        self.grain = Grain(BLOCK, self.item * self._kept(BLOCK))

    def _kept(self, values: int) -> int:
        """Number of values kept of a block of `values`."""
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
            # a peer that sends a place beyond the block only harms the sum it takes part in
            chosen = np.minimum(places[here].reshape(shape), rows.shape[1] - 1).astype(np.intp)
            np.put_along_axis(rows, chosen, values[here].reshape(shape), axis=1)
            at += here.stop - here.start

    def items(self, head: Bytes, body: Bytes, count: int) -> Numbers:
        return body.view(_VALUE)


def _runs(numbers: Numbers) -> list[Numbers]:
    """Views of `numbers`: whole blocks, one per row, and then the short last block."""
    whole = len(numbers) // BLOCK * BLOCK
    runs = [numbers[:whole].reshape(-1, BLOCK), numbers[whole:].reshape(1, -1)]
    return [run for run in runs if run.size]


def _places_of_largest(rows: Numbers, kept: int) -> NDArray[np.intp]:
    """Places of the `kept` values of largest magnitude, by row, ascending."""
    least = rows.shape[1] - kept
    chosen = np.argpartition(np.abs(rows), least, axis=1)[:, least:]  # NaN comes after all others
    chosen.sort(axis=1)
    return chosen


def codec(wanted: CodecName) -> TopK:
    """Constructor for `dlcpd.contract.codec.KINDS`."""
    return TopK(str(wanted), wanted.fraction)
