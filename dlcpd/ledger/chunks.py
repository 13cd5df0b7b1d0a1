"""The bytes of a tensor that a program reads and writes, chunk by chunk, and their digests."""

from typing import Final, NamedTuple
from zlib import crc32

import numpy as np

from dlcpd.contract.errors import BadLedger
from dlcpd.contract.sized_cache import SizedCache
from dlcpd.core.wire.datagram import Bytes
from dlcpd.schedules.model import Buffer, Program, Span, spans

_U32: Final = np.dtype("<u4")


class LedgerChunk(NamedTuple):
    """Bytes [start, stop) of a contribution, or of a result."""

    start: int
    stop: int


class Chunks(NamedTuple):
    """Chunks of one program: ascending, each once."""

    read: tuple[LedgerChunk, ...]  # of INPUT
    written: tuple[LedgerChunk, ...]  # of OUTPUT


@SizedCache(most=1 << 16, size=lambda found: len(found.read) + len(found.written) + 1)
def chunks(program: Program) -> Chunks:
    """Chunks of INPUT that a program reads, and of OUTPUT that it writes, one per span."""
    found = {span for step in program.steps for span in spans(step)}
    return Chunks(_of(Buffer.INPUT, found), _of(Buffer.OUTPUT, found))


def _of(buffer: Buffer, found: set[Span]) -> tuple[LedgerChunk, ...]:
    here = sorted((s.start, s.start + s.size) for s in found if s.buffer == buffer and s.size)
    return tuple(LedgerChunk(*pair) for pair in here)


def digests(data: Bytes, parts: tuple[LedgerChunk, ...]) -> bytes:
    """CRC-32 of each part, four bytes each.

    It never misses a change of up to 32 bits in a row, and any other with a chance of 2**-32. A
    cryptographic hash would take two to four times as long (docs/ledger.md), and would not stop
    forgery: the rank that could forge data also writes the digest.
    """
    return np.array([crc32(data[p.start : p.stop].data) for p in parts], _U32).tobytes()


def first_difference(one: bytes, two: bytes) -> int | None:
    """Number of the first part whose digests differ; None if all are equal.

    Raises: BadLedger if their numbers of parts differ.
    """
    if len(one) != len(two) or len(one) % 4:
        raise BadLedger(f"{len(one) // 4} digests where {len(two) // 4} are expected")
    apart = np.flatnonzero(np.frombuffer(one, _U32) != np.frombuffer(two, _U32))
    return int(apart[0]) if len(apart) else None
