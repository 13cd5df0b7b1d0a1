"""Bodies of the control datagrams, after the 32-byte header. Scalar: there are few.

Every `*_untrusted` parser raises MalformedDatagram and nothing else, and sizes
nothing by a peer's number.
"""

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np

from dlcpd.contract.errors import MalformedDatagram
from dlcpd.contract.messages import DTYPES, REDUCE_OPS
from dlcpd.contract.traffic import MAX_CLASSES
from dlcpd.core.bitmap import Bits
from dlcpd.core.path_mtu import BASE, MAX_SEGMENT, UNIT
from dlcpd.core.wire import HEADER_SIZE, MAX_PATHS, Header

MAX_CHUNKS_LISTED: Final = 256  # per COMPLETE datagram: 1 KiB of body
FILLS: Final = ("residual", "zero")
_READY: Final = struct.Struct("<BBBBQdQIIQH")
_CREDIT: Final = struct.Struct("<BxxxI")
_CREDIT_ROW: Final = struct.Struct("<BBHIIIII")
MAX_CREDIT_ROWS: Final = 48  # of one CREDIT datagram: 1,160 bytes, within every MTU


@dataclass(frozen=True, slots=True)
class Ready:
    """What a rank submitted under an operation number, and how far it checked replicas."""

    dtype: str
    reduce: str
    fill: str
    traffic_class: int
    count: int  # elements
    max_loss: float
    fingerprint: int  # u64 over name and critical ranges
    window: int = 0  # bytes this rank may be sent before it credits more
    checked: int = 0  # newest operation whose replica digest follows; 0 = none
    digest: int = 0  # u64
    segment_size: int = BASE  # u16; of this rank's data towards the peer, in this operation

    def pack(self) -> bytes:
        return _READY.pack(
            DTYPES.index(self.dtype), REDUCE_OPS.index(self.reduce), FILLS.index(self.fill),
            self.traffic_class, self.count, self.max_loss, self.fingerprint,
            self.window, self.checked, self.digest, self.segment_size,
        )  # fmt: skip

    def told(self, window: int, checked: int, digest: int, segment_size: int) -> "Ready":
        """This operation, with what one peer is told along with it."""
        return Ready(
            self.dtype, self.reduce, self.fill, self.traffic_class, self.count, self.max_loss,
            self.fingerprint, window, checked, digest, segment_size,
        )  # fmt: skip

    def agrees_with(self, other: "Ready") -> bool:
        """Whether both ranks submitted the same operation."""
        return self.operation() == other.operation()

    def operation(self) -> tuple[object, ...]:
        """What ranks must agree on."""
        return (self.dtype, self.reduce, self.fill, self.traffic_class, self.count,
                self.max_loss, self.fingerprint)  # fmt: skip

    def describe(self) -> str:
        """For an error text; the fingerprint tells apart what the rest cannot."""
        loss = f"max_loss {self.max_loss:g}" if self.max_loss else "exact"
        return (
            f"{self.reduce} of {self.dtype}[{self.count}], {loss}, fill {self.fill}, "
            f"class {self.traffic_class}, name and critical ranges {self.fingerprint:016x}"
        )


@dataclass(frozen=True, slots=True)
class SpaceCredit:
    """State of one traffic class on one path, as its receiver sees it."""

    path: int
    traffic_class: int
    marked: int  # datagrams that came marked CE, ever (u16, wraps)
    largest: int  # largest packet number that arrived
    received: int  # packets that arrived, ever (u32, wraps)
    echo: int  # a datagram's sent_at, microseconds; 0 = nothing new to echo
    held: int  # microseconds from its arrival to this answer
    arrived: int  # that arrival, microseconds of the receiver's clock


def body_untrusted(data: bytes) -> bytes:
    """What follows the header."""
    return data[HEADER_SIZE:]


def unpack_ready_untrusted(body: bytes) -> Ready:
    """Raises MalformedDatagram."""
    if len(body) != _READY.size:
        raise MalformedDatagram("length", f"READY body of {len(body)} bytes")
    (dtype, reduce, fill, traffic_class, count, loss, mark, window, checked, digest,
     segment_size) = _READY.unpack(body)  # fmt: skip
    if dtype >= len(DTYPES) or reduce >= len(REDUCE_OPS) or fill >= len(FILLS):
        raise MalformedDatagram("body", f"READY names {dtype}, {reduce}, {fill}")
    if segment_size % UNIT or not UNIT <= segment_size <= MAX_SEGMENT:
        raise MalformedDatagram("body", f"READY of segments of {segment_size} bytes")
    return Ready(
        DTYPES[dtype], REDUCE_OPS[reduce], FILLS[fill], traffic_class, count, loss, mark,
        window, checked, digest, segment_size,
    )  # fmt: skip


def pack_credit(window: int, rows: list[SpaceCredit]) -> bytes:
    """`window` in bytes."""
    head = _CREDIT.pack(len(rows), window)
    return head + b"".join(
        _CREDIT_ROW.pack(
            r.path,
            r.traffic_class,
            r.marked,
            r.largest,
            r.received & 0xFFFFFFFF,
            r.echo,
            r.held,
            r.arrived,
        )
        for r in rows
    )


def unpack_credit_untrusted(body: bytes) -> tuple[int, list[SpaceCredit]]:
    """(window in bytes, rows). Raises MalformedDatagram."""
    if len(body) < _CREDIT.size:
        raise MalformedDatagram("length", f"CREDIT body of {len(body)} bytes")
    count, window = _CREDIT.unpack_from(body)
    rows = body[_CREDIT.size :]
    if count > MAX_CREDIT_ROWS or len(rows) != count * _CREDIT_ROW.size:
        raise MalformedDatagram("length", f"CREDIT of {count} rows in {len(body)} bytes")
    credits = [SpaceCredit(*row) for row in _CREDIT_ROW.iter_unpack(rows)]
    if any(c.path >= MAX_PATHS or c.traffic_class >= MAX_CLASSES for c in credits):
        raise MalformedDatagram("path", "CREDIT row")
    return window, credits


def unpack_chunks_untrusted(body: bytes) -> list[int]:
    """Chunk indices of COMPLETE. Raises MalformedDatagram."""
    if len(body) % 4 or len(body) > 4 * MAX_CHUNKS_LISTED:
        raise MalformedDatagram("length", f"COMPLETE body of {len(body)} bytes")
    chunks: list[int] = np.frombuffer(body, "<u4").tolist()
    return chunks


def pack_chunks(chunks: list[int]) -> bytes:
    """Inverse of `unpack_chunks_untrusted`."""
    return np.asarray(chunks, "<u4").tobytes()


def unpack_bits_untrusted(body: bytes, segments: int) -> Bits:
    """Bitmap of NACK and FINAL: one bit per segment of the chunk. Raises MalformedDatagram."""
    if len(body) != -(-segments // 8):
        raise MalformedDatagram("length", f"bitmap of {len(body)} bytes for {segments} segments")
    bits = np.unpackbits(np.frombuffer(body, np.uint8), bitorder="little").view(bool)
    if bits[segments:].any():
        raise MalformedDatagram("body", "bitmap names segments beyond the chunk")
    return bits[:segments]


def datagram(header: Header, body: bytes = b"") -> bytes:
    """One control datagram."""
    return header.pack() + body
