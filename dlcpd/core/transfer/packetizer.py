"""Divides a chunk into segments, and orders them for sending."""

import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.contract.traffic import DROP_PRECEDENCES
from dlcpd.core.wire.bitmap import Bits, Segments

_COUNTING = np.arange(4096, dtype=np.intp)
BLOCK: Final = 16  # segments of one drop precedence in a row: 23 KB, less than queues mark at


def segment_count(size: int, segment_size: int) -> int:
    """Segments of a chunk of `size` bytes; the last may be shorter."""
    return -(-size // segment_size)


def natural_order(segments: int) -> Segments:
    """0, 1, ... A view: do not write."""
    return _COUNTING[:segments]


@lru_cache(maxsize=256)
def all_of_tag(segments: int, tag: int) -> NDArray[np.uint8]:
    """Tags of segments that all have the same. Shared, and read-only."""
    tags = np.full(segments, tag, np.uint8)
    tags.flags.writeable = False
    return tags


def rotated_order(segments: int, *, short_tail: bool, rng: random.Random) -> Segments:
    """All segments once, beginning at a seeded offset, so that no position is always last (P5).

    A short last segment stays last: only the last datagram of a GSO burst may be
    shorter than the others.
    """
    full = segments - short_tail
    start = rng.randrange(full) if full > 1 else 0
    order = np.roll(natural_order(full), -start)
    return np.append(order, segments - 1) if short_tail else order


def by_tag(order: Segments, tags: NDArray[np.uint8]) -> Segments:
    """`order` with the most urgent class first, and its drop precedences in alternating blocks.

    A queue can drop one drop precedence rather than another only if both arrive together: a queue
    with the heavy segments alone would have to drop those. Blocks are short against queues and long
    enough for a GSO burst. A short last segment comes last of its class.
    """
    if not np.count_nonzero(tags[:1] != tags):
        return order
    ranked = tags[order]
    turn = np.empty(len(order), np.float32)  # 0..1, how far into the pass
    for tag in np.unique(ranked).tolist():
        at = np.flatnonzero(ranked == tag)
        turn[at] = natural_order(len(at)) // BLOCK * (BLOCK / len(at))
    if order[-1] == len(order) - 1:
        turn[-1] = np.inf  # it may be short
    return order[np.lexsort((ranked, turn, ranked // DROP_PRECEDENCES))]


def exempt_segments(
    ranges: Sequence[tuple[int, int]], start: int, size: int, segment_size: int
) -> Bits | None:
    """Which segments of the chunk at byte `start` touch an exempt byte range.

    None when none does. `ranges` are sorted, disjoint [start, stop) in bytes.
    """
    bits: Bits | None = None
    for low, high in ranges:
        a, b = max(low, start), min(high, start + size)
        if a < b:
            if bits is None:
                bits = np.zeros(segment_count(size, segment_size), bool)
            bits[(a - start) // segment_size : -(-(b - start) // segment_size)] = True
    return bits
