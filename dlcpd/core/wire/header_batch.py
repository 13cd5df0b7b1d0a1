"""The numpy twin of `header`: headers of a whole batch at once.

A header is ten little-endian 32-bit words; an array of headers has shape (n, 10).
`checksum.Checksum.seal` writes the last two, the checksum.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.contract.traffic import DROP_PRECEDENCES
from dlcpd.core.wire.bitmap import Segments
from dlcpd.core.wire.header import (
    HEADER_SIZE,
    KNOWN_FLAGS,
    MAX_PATHS,
    MAX_SEGMENTS,
    MAX_TAGS,
    VERSION,
    Header,
    Kind,
)

WORDS: Final = HEADER_SIZE // 4
Words = NDArray[np.uint32]  # shape (n, 10)
# word 0: version | kind << 8 | flags << 16 | path << 24
# word 4: stream | transfer << 16
# word 5: segment | round << 16 | tag << 24
PATH_SHIFT: Final = 24  # of the path, in the first word
OPERATION, TOKEN_LOW, TOKEN_HIGH, TRANSFER, SEGMENT, NUMBER, SENT_AT = 1, 2, 3, 4, 5, 6, 7

STAMPED: Final = 32  # first datagrams of a batch, which carry its send time: the rest leave later
_COUNTING: Final = np.arange(MAX_SEGMENTS, dtype=np.uint32)

assert MAX_SEGMENTS & (MAX_SEGMENTS - 1) == 0  # noqa: S101  # constants only
assert MAX_TAGS & (MAX_TAGS - 1) == DROP_PRECEDENCES & (DROP_PRECEDENCES - 1) == 0  # noqa: S101
_MAY_DIFFER: Final = KNOWN_FLAGS << 16, (MAX_SEGMENTS - 1 | (DROP_PRECEDENCES - 1) << 24) << 32
# bits of the pairs (word 0, operation), (token), (word 4, word 5) that vary within a group
_EQUAL: Final = np.array(
    [~_MAY_DIFFER[0] & (1 << 64) - 1, (1 << 64) - 1, ~_MAY_DIFFER[1] & (1 << 64) - 1], np.uint64
)


def parse(rows: NDArray[np.uint8]) -> Words:
    """Words of headers, shape (n, 40) bytes in. Nothing is checked here: see `group_starts`."""
    return np.ascontiguousarray(rows).view("<u4")


def well_formed_data(words: Words) -> NDArray[np.bool_]:
    """Which headers are of DATA and accepted by the scalar codec."""
    first, fifth = words[:, 0], words[:, SEGMENT]
    data: NDArray[np.bool_] = first & 0xFFFF == VERSION | Kind.DATA << 8
    data &= first & (0xFF & ~KNOWN_FLAGS) << 16 == 0
    data &= first >> PATH_SHIFT < MAX_PATHS
    data &= fifth & 0xFFFF < MAX_SEGMENTS
    data &= fifth >> 24 < MAX_TAGS
    return data


def group_starts(words: Words) -> list[int]:
    """Start of each run of rows of one kind, path, token, transfer, round and class.

    Ends with len(words). Rows of a group differ only where every value is well-formed
    (known flags, segments and drop precedences within their limits), so the scalar codec's verdict
    on its first header is the verdict on all.
    """
    if len(words) == 1:
        return [0, 1]
    pairs = words.view("<u8")[:, :3]
    change = (pairs[1:] ^ pairs[:-1]) & _EQUAL
    if not np.count_nonzero(change):
        return [0, len(words)]
    return [0, *(np.flatnonzero(change.any(axis=1)) + 1).tolist(), len(words)]


def build(
    first: Header, segments: Segments, tags: NDArray[np.uint8], flags: NDArray[np.uint8]
) -> Words:
    """Headers of `segments` with their `tags` and `flags`, otherwise like `first`, whose segment,
    tag and flags are 0; numbered from its packet number on. The first STAMPED carry its time, the
    others 0."""
    words = np.empty((len(segments), WORDS), np.uint32)
    words[:] = np.frombuffer(first.pack(), "<u4")
    words[:, SEGMENT] += segments.astype(np.uint32) | tags.astype(np.uint32) << 24
    words[:, NUMBER] += _COUNTING[: len(segments)]
    words[:, 0] |= flags.astype(np.uint32) << 16
    words[STAMPED:, SENT_AT] = 0
    return words
