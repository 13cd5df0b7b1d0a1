"""Bodies of the control datagrams, after the 40-byte header. Scalar: there are few.

Every `*_untrusted` parser raises MalformedDatagram and nothing else, and sizes
nothing by a peer's number.
"""

import struct
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlcpd.contract.errors import MalformedDatagram
from dlcpd.contract.traffic import MAX_CLASSES
from dlcpd.core.wire.bitmap import Bits
from dlcpd.core.wire.header import HEADER_SIZE, MAX_PATHS, Header
from dlcpd.core.wire.sizes import BASE, MAX_SEGMENT, UNIT

MAX_LISTED: Final = 512  # transfers of one COMPLETE datagram: 1 KiB of body
MAX_TEXT: Final = 256  # characters of READY
_READY: Final = struct.Struct("<IHHIQQQIQ")
_CREDIT: Final = struct.Struct("<BxxxI")
_CREDIT_ROW: Final = struct.Struct("<BBHIIIII")
_END_ROW: Final = struct.Struct("<BBxxI")
MAX_END_ROWS: Final = 128  # of one END datagram: 1 KiB of body
_PERMIT: Final = struct.Struct("<H")
_DIGEST_ROW: Final = struct.Struct("<IB3xQ")
MAX_DIGEST_ROWS: Final = 64  # of one DIGESTS datagram: 1 KiB of body
MAX_CREDIT_ROWS: Final = 48  # of one CREDIT datagram: 1,160 bytes, within every MTU


class Ready(NamedTuple):
    """An operation as its rank announces it to one peer, with the rank's window and the digest of
    an earlier result."""

    text: str  # the operation in words, equal on both ranks: compared, and quoted in errors
    fingerprint: int  # u64, of the details that the text leaves out
    segment_size: int  # payload bytes of the datagrams that this rank will send for it
    tag: int = 0  # u32: a receiver takes only messages of its tag
    outgoing: int = 0  # bytes that this rank owes the peer
    incoming: int = 0  # bytes that the peer owes this rank
    window: int = 0  # bytes that this rank may be sent before its next CREDIT
    checked: int = 0  # an earlier operation of the stream whose replica digest follows; 0 = none
    digest: int = 0  # u64
    carried: bytes | None = None  # the `outgoing` bytes; None: they come as DATA

    def pack(self) -> bytes:
        head = _READY.pack(
            self.window,
            self.segment_size,
            len(self.text),
            self.tag,
            self.outgoing,
            self.incoming,
            self.fingerprint,
            self.checked,
            self.digest,
        )
        return head + self.text.encode("ascii") + (self.carried or b"")

    def told(self, window: int, checked: int, digest: int) -> "Ready":
        """This operation with another window and digest."""
        return Ready(
            self.text,
            self.fingerprint,
            self.segment_size,
            self.tag,
            self.outgoing,
            self.incoming,
            window,
            checked,
            digest,
            self.carried,
        )

    def agrees_with(self, other: "Ready") -> bool:
        """Whether both ranks submitted the same operation, and owe what the other awaits."""
        return (
            self.text == other.text
            and self.fingerprint == other.fingerprint
            and self.tag == other.tag
            and (self.outgoing, self.incoming) == (other.incoming, other.outgoing)
        )

    def describe(self) -> str:
        """The operation for an error text; the fingerprint shows differences that the rest does
        not."""
        tag = f"tag {self.tag}, " if self.tag else ""
        return (
            f"{self.text} ({tag}sends {self.outgoing} B to its peer, awaits {self.incoming} B; "
            f"the rest as {self.fingerprint:016x})"
        )


class SpaceCredit(NamedTuple):
    """State of one traffic class on one path, as its receiver sees it."""

    path: int
    traffic_class: int
    marked: int  # datagrams that came marked CE, in total (u16, wraps)
    largest: int  # largest packet number that arrived
    received: int  # packets that arrived, in total (u32, wraps)
    echo: int  # a datagram's sent_at, microseconds; 0 = nothing new to echo
    held: int  # microseconds from its arrival to this answer
    arrived: int  # that arrival, microseconds of the receiver's clock


class EndRow(NamedTuple):
    """The last datagram that a pass sent on one path, of one traffic class."""

    path: int
    traffic_class: int
    packet_number: int  # u32


class DigestRow(NamedTuple):
    """A rank's digest of the result of an operation."""

    operation: int
    known: bool  # False: the rank has no digest, and never will
    digest: int  # u64


def most_carried(text: str, segment_size: int) -> int:
    """Bytes that a READY with `text` can carry in a datagram as long as one of DATA; may be
    negative."""
    return segment_size - _READY.size - len(text)


def body_untrusted(data: bytes) -> bytes:
    """The bytes after the header."""
    return data[HEADER_SIZE:]


def unpack_ready_untrusted(body: bytes, *, carries: bool = False) -> Ready:
    """`carries`: data follow the text. Raises MalformedDatagram."""
    if len(body) < _READY.size:
        raise MalformedDatagram("length", f"READY body of {len(body)} bytes")
    (window, segment_size, size, tag, outgoing, incoming, mark, checked, digest) = (
        _READY.unpack_from(body)
    )
    end = _READY.size + size
    raw, carried = body[_READY.size : end], body[end:] if carries else None
    if size > MAX_TEXT or len(body) != end + (outgoing if carries else 0):
        raise MalformedDatagram("length", f"READY of {size} characters in {len(body)} bytes")
    if not raw.isascii() or not (text := raw.decode("ascii")).isprintable():
        raise MalformedDatagram("body", "READY text")
    if segment_size % UNIT or not UNIT <= segment_size <= MAX_SEGMENT:
        raise MalformedDatagram("body", f"READY of segments of {segment_size} bytes")
    return Ready(
        text, mark, segment_size, tag, outgoing, incoming, window, checked, digest, carried
    )


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
    for credit in credits:
        if credit.path >= MAX_PATHS or credit.traffic_class >= MAX_CLASSES:
            raise MalformedDatagram("path", "CREDIT row")
    return window, credits


def pack_ends(rows: list[EndRow]) -> bytes:
    """Body of END: at most MAX_END_ROWS. Packet numbers wrap into their field."""
    return b"".join(
        _END_ROW.pack(row.path, row.traffic_class, row.packet_number & 0xFFFFFFFF) for row in rows
    )


def unpack_ends_untrusted(body: bytes) -> list[EndRow]:
    """Inverse of `pack_ends`. Raises MalformedDatagram."""
    if len(body) % _END_ROW.size or len(body) > MAX_END_ROWS * _END_ROW.size:
        raise MalformedDatagram("length", f"END body of {len(body)} bytes")
    rows = [EndRow(*row) for row in _END_ROW.iter_unpack(body)]
    for row in rows:
        if row.path >= MAX_PATHS or row.traffic_class >= MAX_CLASSES:
            raise MalformedDatagram("path", "END row")
    return rows


def pack_digests(rows: list[DigestRow]) -> bytes:
    """At most MAX_DIGEST_ROWS."""
    return b"".join(_DIGEST_ROW.pack(*row) for row in rows)


def unpack_digests_untrusted(body: bytes) -> list[DigestRow]:
    """Inverse of `pack_digests`. Raises MalformedDatagram."""
    if len(body) % _DIGEST_ROW.size or len(body) > MAX_DIGEST_ROWS * _DIGEST_ROW.size:
        raise MalformedDatagram("length", f"DIGESTS body of {len(body)} bytes")
    rows = list(_DIGEST_ROW.iter_unpack(body))
    if any(known > 1 for _, known, _ in rows):
        raise MalformedDatagram("body", "DIGESTS row")
    return [DigestRow(operation, bool(known), digest) for operation, known, digest in rows]


def unpack_transfers_untrusted(body: bytes) -> list[int]:
    """Transfers that COMPLETE names. Raises MalformedDatagram."""
    if len(body) % 2 or len(body) > 2 * MAX_LISTED:
        raise MalformedDatagram("length", f"COMPLETE body of {len(body)} bytes")
    transfers: list[int] = np.frombuffer(body, "<u2").tolist()
    return transfers


def pack_transfers(transfers: list[int]) -> bytes:
    """Inverse of `unpack_transfers_untrusted`."""
    return np.asarray(transfers, "<u2").tobytes()


def unpack_bits_untrusted(body: bytes, segments: int) -> Bits:
    """Bitmap of NACK and FINAL: one bit per segment of the transfer. Raises MalformedDatagram."""
    if len(body) != -(-segments // 8):
        raise MalformedDatagram("length", f"bitmap of {len(body)} bytes for {segments} segments")
    bits = np.unpackbits(np.frombuffer(body, np.uint8), bitorder="little").view(bool)
    if bits[segments:].any():
        raise MalformedDatagram("body", "bitmap names segments beyond the transfer")
    return bits[:segments]


def most_permitted(segment_size: int) -> int:
    """Segments of the longest transfer that a PERMIT can describe: it is no longer than DATA, or
    than the least MTU allows."""
    return max(segment_size, BASE) - _PERMIT.size


def pack_permit(limit: int, costs: NDArray[np.uint8]) -> bytes:
    """Body of PERMIT; see `Permit` for its parts. `limit`: u16."""
    return _PERMIT.pack(limit) + costs.tobytes()


def unpack_permit_untrusted(body: bytes, segments: int) -> tuple[int, NDArray[np.uint8]]:
    """Inverse of `pack_permit`, for a transfer of `segments`. Raises MalformedDatagram."""
    if len(body) != _PERMIT.size + segments:
        raise MalformedDatagram("length", f"PERMIT of {len(body)} bytes for {segments} segments")
    limit: int = _PERMIT.unpack_from(body)[0]
    return limit, np.frombuffer(body, np.uint8, segments, _PERMIT.size)


def datagram(header: Header, body: bytes = b"") -> bytes:
    """One control datagram."""
    return header.pack() + body
