"""Framing of records in a file: each follows a head with its length and check sums.

    length u32, CRC-32 of the body u32, CRC-32 of these eight bytes u32, body

A killed process leaves a record without its end; a stopped machine may also leave zeros in its
place. Only that is accepted, and only at the end of the last file. A length or a body with a
wrong check sum is damage.
"""

import mmap
import struct
from collections.abc import Iterator
from typing import Final
from zlib import crc32

from dlcpd.contract.errors import BadLedger
from dlcpd.ledger.records import Record, decode_untrusted, encode

Bytes = bytes | mmap.mmap
HEAD: Final = struct.Struct("<III")
# Bytes of a record. The largest is of an operation all of whose transfers have missing segments:
# 16,384 of them with bitmaps of 512 B, which is 64 GiB of gradients.
MAX_RECORD: Final = 16 << 20


def frame(record: Record) -> bytes:
    """One record as it is written. Raises: BadLedger for one that is too long."""
    body = encode(record)
    if len(body) > MAX_RECORD:
        raise BadLedger(f"a record of {len(body)} B, at most {MAX_RECORD}")
    counts = struct.pack("<II", len(body), crc32(body))
    return counts + struct.pack("<I", crc32(counts)) + body


def records_untrusted(data: bytes, *, may_be_torn: bool) -> Iterator[Record]:
    """The records of a file, in order. If `may_be_torn`, a torn last record is left out.

    Raises: BadLedger with the offset of the damage.
    """
    at = 0
    while at < len(data):
        try:
            record, end = record_at_untrusted(data, at, may_be_torn=may_be_torn)
        except BadLedger as exc:
            raise BadLedger(f"damaged at byte {at}: {exc}") from exc
        if record is None:
            return
        yield record
        at = end


def record_at_untrusted(data: Bytes, at: int, *, may_be_torn: bool) -> tuple[Record | None, int]:
    """The record at `at`, and the offset of the next one. None if it is torn and `may_be_torn`.

    Raises: BadLedger.
    """
    head = data[at : at + HEAD.size]
    # The rest of the file, which may be large, is read only if the head is all zeros.
    if may_be_torn and (len(head) < HEAD.size or not (any(head) or any(data[at:]))):
        return None, at
    if len(head) < HEAD.size:
        raise BadLedger("the end of a record is missing")
    length, proof, proof_of_head = HEAD.unpack(head)
    if crc32(head[:8]) != proof_of_head or length > MAX_RECORD:
        raise BadLedger("this is no beginning of a record")
    start = at + HEAD.size
    body = data[start : start + length]
    if len(body) < length and may_be_torn:
        return None, at
    if len(body) < length:
        raise BadLedger("the end of a record is missing")
    if crc32(body) != proof:
        raise BadLedger("its check sum is wrong")
    return decode_untrusted(body), start + length
