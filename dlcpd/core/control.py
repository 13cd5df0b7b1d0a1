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
from dlcpd.core.wire import HEADER_SIZE, MAX_PATHS, Header

MAX_CHUNKS_LISTED: Final = 256  # per COMPLETE datagram: 1 KiB of body
NAME_BITS: Final = 24
PART_BITS: Final = 20
PART: Final = 1 << PART_BITS
FILLS: Final = ("residual", "zero")
_READY: Final = struct.Struct("<BBBBQdQIIQ")
_CREDIT: Final = struct.Struct("<BxxxI")
_CREDIT_ROW: Final = struct.Struct("<BBHIIIII")
MAX_CREDIT_ROWS: Final = 48  # of one CREDIT datagram: 1,160 bytes, within every MTU


def fingerprint(name: int, critical: int, layers: int) -> int:
    """One u64 of three digests: the low 24, 20 and 20 bits of each.

    Apart, so that ranks that disagree are told in what. 20 bits do: a program that lets ranks
    disagree does so in many operations, and each is another chance of one in a million.
    """
    low = (critical % PART) << PART_BITS | layers % PART
    return (name % (1 << NAME_BITS)) << 2 * PART_BITS | low


def digests(mark: int) -> tuple[int, int, int]:
    """What `fingerprint` keeps of name, critical ranges and layers."""
    return mark >> 2 * PART_BITS, (mark >> PART_BITS) % PART, mark % PART


@dataclass(frozen=True, slots=True)
class Ready:
    """What a rank submitted under an operation number, and how far it checked replicas."""

    dtype: str
    reduce: str
    fill: str
    traffic_class: int
    count: int  # elements
    max_loss: float
    fingerprint: int  # u64, of `fingerprint()`
    window: int = 0  # bytes this rank may be sent before it credits more
    checked: int = 0  # newest operation whose replica digest follows; 0 = none
    digest: int = 0  # u64

    def pack(self) -> bytes:
        return _READY.pack(
            DTYPES.index(self.dtype), REDUCE_OPS.index(self.reduce), FILLS.index(self.fill),
            self.traffic_class, self.count, self.max_loss, self.fingerprint,
            self.window, self.checked, self.digest,
        )  # fmt: skip

    def told(self, window: int, checked: int, digest: int) -> "Ready":
        """This operation, with what one peer is told along with it."""
        return Ready(
            self.dtype, self.reduce, self.fill, self.traffic_class, self.count, self.max_loss,
            self.fingerprint, window, checked, digest,
        )  # fmt: skip

    def agrees_with(self, other: "Ready") -> bool:
        """Whether both ranks submitted the same operation."""
        return self.operation() == other.operation()

    def operation(self) -> tuple[object, ...]:
        """What ranks must agree on."""
        return (self.dtype, self.reduce, self.fill, self.traffic_class, self.count,
                self.max_loss, self.fingerprint)  # fmt: skip

    def describe(self) -> str:
        """For an error text; digests tell apart what would be too long to say."""
        name, critical, layers = digests(self.fingerprint)
        loss = f"max_loss {self.max_loss:g}" if self.max_loss else "exact"
        return (
            f"{self.reduce} of {self.dtype}[{self.count}], {loss}, fill {self.fill}, "
            f"class {self.traffic_class}, name {name:06x}, "
            f"critical ranges {critical:05x}, layers {layers:05x}"
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
    dtype, reduce, fill, traffic_class, count, loss, mark, window, checked, digest = _READY.unpack(
        body
    )
    if dtype >= len(DTYPES) or reduce >= len(REDUCE_OPS) or fill >= len(FILLS):
        raise MalformedDatagram("body", f"READY names {dtype}, {reduce}, {fill}")
    return Ready(
        DTYPES[dtype], REDUCE_OPS[reduce], FILLS[fill], traffic_class, count, loss, mark,
        window, checked, digest,
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
