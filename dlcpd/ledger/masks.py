"""Masks of missing segments in few bytes: runs if they are adjacent or few, else a bitmap.

The first byte tells which. Runs are pairs of two bytes, little-endian: the number of segments
here, then of segments missing. At a random loss of 1 % a missing segment costs four bytes, and a
transfer of 4 MiB about 120; from a loss of 1 in 32 on the bitmap is shorter, 512 bytes at most.
"""

import struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.contract.errors import BadLedger
from dlcpd.core.wire.bitmap import Segments
from dlcpd.core.wire.header import MAX_SEGMENTS

RUNS: Final = 0
BITMAP: Final = 1
_RUNS, _BITMAP = bytes([RUNS]), bytes([BITMAP])
_U16: Final = np.dtype("<u2")
_PATH: Final = struct.Struct("<BH")  # a path, and number of segments last sent on it


def pack(missing: Segments, count: int) -> bytes:
    """Mask of `missing`, ascending, of `count` segments."""
    bits = np.zeros(count, np.uint8)
    bits[missing] = 1
    edges = np.flatnonzero(np.diff(bits, prepend=0, append=0))
    runs = np.diff(edges, prepend=0).astype(_U16).tobytes()
    bitmap = np.packbits(bits, bitorder="little").tobytes()
    return bytes([RUNS]) + runs if len(runs) <= len(bitmap) else bytes([BITMAP]) + bitmap


def unpack_untrusted(mask: bytes, count: int) -> Segments:
    """Inverse of `pack`. Raises: BadLedger."""
    if not 1 <= count <= MAX_SEGMENTS or not mask:
        raise BadLedger(f"a mask of {len(mask)} bytes for {count} segments")
    body = mask[1:]
    if mask[0] == BITMAP and len(body) == -(-count // 8):
        bits = np.unpackbits(np.frombuffer(body, np.uint8), bitorder="little")
        if not bits[count:].any():
            return np.flatnonzero(bits)
    if mask[0] == RUNS and len(body) % 4 == 0:
        edges = np.cumsum(np.frombuffer(body, _U16).astype(np.int64))
        if not len(edges) or edges[-1] <= count:
            return np.flatnonzero(_between(edges, count))
    raise BadLedger(f"a mask that is none of {count} segments")


def count_untrusted(mask: bytes, count: int) -> int:
    """Length of the result of `unpack_untrusted`, in less time: a survey counts millions of masks.

    Raises: BadLedger.
    """
    body = mask[1:]
    if 1 <= count <= MAX_SEGMENTS and mask[:1] == _BITMAP and len(body) == -(-count // 8):
        bits = int.from_bytes(body, "little")
        if not bits >> count:
            return bits.bit_count()
    if 1 <= count <= MAX_SEGMENTS and mask[:1] == _RUNS and len(body) % 4 == 0:
        runs = struct.unpack(f"<{len(body) // 2}H", body)
        if sum(runs) <= count:
            return sum(runs[1::2])
    raise BadLedger(f"a mask that is none of {count} segments")


def pack_paths(paths: dict[int, int]) -> bytes:
    """Encode numbers of segments by path."""
    return b"".join(_PATH.pack(path, count) for path, count in sorted(paths.items()))


def unpack_paths_untrusted(data: bytes) -> dict[int, int]:
    """Inverse of `pack_paths`. Raises: BadLedger."""
    if len(data) % _PATH.size:
        raise BadLedger(f"{len(data)} bytes are no list of paths")
    return dict(_PATH.iter_unpack(data))


def _between(edges: NDArray[np.int64], count: int) -> NDArray[np.bool_]:
    """Bits that are set from every even edge to the odd one after it."""
    change = np.zeros(count + 1, np.int64)
    np.add.at(change, edges[::2], 1)
    np.add.at(change, edges[1::2], -1)
    return np.cumsum(change[:-1]) > 0
