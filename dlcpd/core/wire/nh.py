"""NH: a keyed hash at memory speed. Two different inputs collide under one of 2**32 keys.

For a row of 64-bit words m and a key k of as many words, NH is the sum, modulo 2**64, of (low(m) +
low(k)) * (high(m) + high(k)), where low and high are 32-bit halves and those sums are modulo 2**32.
Source: Black, Halevi, Krawczyk, Krovetz and Rogaway, "UMAC: fast and secure message authentication"
(CRYPTO 1999); RFC 4418 section 5.2. A value of NH reveals information on its key, so only its image
under a pseudorandom function leaves a host.

`dlcpd/io/datapath/checksum.c` is its twin.
"""

import hashlib
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.core.wire.datagram import Bytes

WORD: Final = 8  # bytes
_STEP: Final = 192 << 10  # bytes at a time: they and the intermediate arrays fit a cache of 1 MB
_LOW: Final = np.uint64(0xFFFFFFFF)
_SHIFT: Final = np.uint64(32)

Key = NDArray[np.uint32]  # two for each word of a row
Values = NDArray[np.uint64]


def expand(secret: bytes, size: int) -> Key:
    """A key for rows of up to `size` bytes, a multiple of WORD."""
    return np.frombuffer(bytearray(hashlib.shake_128(secret).digest(size)), "<u4")


def of_rows(rows: Bytes, key: Key) -> Values:
    """NH of each row, shape (n, w) with w a multiple of WORD and each row contiguous."""
    words = rows.view("<u4")
    key = key[: words.shape[1]]
    out = np.empty(len(rows), np.uint64)
    step = max(_STEP // max(rows.shape[1], 1), 1)
    for start in range(0, len(rows), step):
        both = (words[start : start + step] + key).view("<u8")
        out[start : start + step] = np.einsum("ij,ij->i", both & _LOW, both >> _SHIFT)
    return out
