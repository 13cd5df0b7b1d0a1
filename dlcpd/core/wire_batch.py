"""The numpy twin of `wire`: headers of a whole batch at once.

A header is eight little-endian 32-bit words; an array of headers has shape (n, 8).
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.core.wire import (
    HEADER_SIZE,
    KNOWN_FLAGS,
    MAX_CLASSES,
    MAX_PATHS,
    MAX_SEGMENTS,
    VERSION,
    Kind,
)

WORDS: Final = HEADER_SIZE // 4
Words = NDArray[np.uint32]  # shape (n, 8)
# word 0: version | kind << 8 | flags << 16 | path << 24
# word 5: segment | round << 16 | class << 24
OPERATION, TOKEN_LOW, TOKEN_HIGH, CHUNK, SEGMENT, NUMBER, SENT_AT = 1, 2, 3, 4, 5, 6, 7
KEY: Final = slice(OPERATION, CHUNK + 1)  # operation, token, chunk: equal within one group

REASONS: Final = ("", "version", "kind", "flags", "path", "segment", "class")  # order of the checks
_LAST_KIND: Final = max(int(kind) for kind in Kind)


def parse(rows: NDArray[np.uint8]) -> tuple[Words, NDArray[np.uint8] | None]:
    """Words of headers, shape (n, 32) bytes in.

    Returns (words, verdicts): verdicts is None when every header is well-formed,
    else shape (n,) of indices into REASONS, 0 = well-formed.
    """
    words = np.ascontiguousarray(rows).view("<u4")
    first, fifth = words[:, 0], words[:, SEGMENT]
    kind = (first >> 8) & 0xFF
    bad = (first & (0xFF | (~KNOWN_FLAGS & 0xFF) << 16)) != VERSION
    bad |= kind - 1 > _LAST_KIND - 1  # unsigned: kind 0 wraps to a large number
    bad |= first >> 24 >= MAX_PATHS
    bad |= (fifth & 0xFFFF) >= MAX_SEGMENTS
    bad |= fifth >> 24 >= MAX_CLASSES
    if not bad.any():
        return words, None
    return words, _verdicts(words)


def _verdicts(words: Words) -> NDArray[np.uint8]:
    """The same checks one by one, to name the first that fails."""
    first, fifth = words[:, 0], words[:, SEGMENT]
    kind = (first >> 8) & 0xFF
    checks = (
        (first & 0xFF) != VERSION,
        (kind < 1) | (kind > _LAST_KIND),
        ((first >> 16) & (~KNOWN_FLAGS & 0xFF)) != 0,
        first >> 24 >= MAX_PATHS,
        (fifth & 0xFFFF) >= MAX_SEGMENTS,
        fifth >> 24 >= MAX_CLASSES,
    )
    verdict = np.zeros(len(words), np.uint8)
    for reason in range(len(checks), 0, -1):
        verdict[checks[reason - 1]] = reason
    return verdict


def group_starts(words: Words) -> list[int]:
    """Start of each run of rows with equal kind, path, operation, token, chunk and round.

    Ends with len(words).
    """
    if len(words) == 1:
        return [0, 1]
    change = (words[1:, KEY] != words[:-1, KEY]).any(axis=1)
    change |= ((words[1:, 0] ^ words[:-1, 0]) & 0xFF00FF00) != 0
    change |= ((words[1:, SEGMENT] ^ words[:-1, SEGMENT]) & 0x00FF0000) != 0
    return [0, *(np.flatnonzero(change) + 1).tolist(), len(words)]


def build(first: int, operation: int, token: int, chunk: int, *, rows: int) -> Words:
    """Headers that agree in everything but segment, packet number and time."""
    words = np.empty((rows, WORDS), np.uint32)
    words[:] = np.array(
        (first, operation, token & 0xFFFFFFFF, token >> 32, chunk, 0, 0, 0), np.uint32
    )
    return words


def first_word(kind: int, flags: int, path: int) -> int:
    """Word 0 of a header."""
    return VERSION | kind << 8 | flags << 16 | path << 24
