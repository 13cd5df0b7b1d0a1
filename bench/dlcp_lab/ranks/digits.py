"""Gradients whose sum shows how often each rank's contribution to each element is in it.

Rank r contributes 8**r in every element, so digit r of the sum to the base 8 counts the values of
that rank: 0 = waived, 2 = this step's value and a reapplied one. A digit counts to 7: at most 6
losses in a row. Eight digits fit float32's 24 bits exactly.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

BASE_BITS: Final = 3
MAX_RANKS: Final = 8  # 8 digits of 3 bits: all integers up to 2**24 are floats

Counts = NDArray[np.int64]


def unit(rank: int) -> float:
    """The contribution of `rank` in every element."""
    return float(1 << BASE_BITS * rank)


def decode(result: NDArray[np.float32], ranks: int) -> Counts:
    """How often each rank's element is in the sum; shape (ranks, elements)."""
    numbers = result.astype(np.int64)
    shifts = BASE_BITS * np.arange(ranks)[:, None]
    digits: Counts = (numbers >> shifts) & ((1 << BASE_BITS) - 1)
    return digits


@dataclass(frozen=True, slots=True)
class Loss:
    """Segments of one sender that are missing in one chunk."""

    sender: int  # rank
    chunk: int
    segments: tuple[int, ...]  # positions in the chunk
    partial: int  # segments of which only some elements are missing: must be 0

    def plain(self) -> list[Any]:
        """As JSON."""
        return [self.sender, self.chunk, list(self.segments), self.partial]


def losses(
    digits: Counts, chunks: list[tuple[int, int, int]], segment_elements: int
) -> Iterator[Loss]:
    """Missing segments by chunk and sender. `chunks` are (index, first element, elements)."""
    for index, start, count in chunks:
        edges = np.arange(0, count, segment_elements)
        for sender, row in enumerate(digits[:, start : start + count] == 0):
            if not row.any():
                continue
            missing = np.add.reduceat(row, edges, dtype=np.int64)
            sizes = np.diff(np.append(edges, count))
            hit = np.flatnonzero(missing)
            yield Loss(
                sender,
                index,
                tuple(hit.tolist()),
                int(np.count_nonzero(missing[hit] != sizes[hit])),
            )
