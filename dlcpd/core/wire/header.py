"""Byte layout of every datagram: the scalar specification. docs/wire.md explains it.

`header_batch` is its numpy twin, dlcpd/io/datapath the one in C; tests/vectors/header.json pins all
three, rejects included. All integers are little-endian, like every supported host, so the fast path
reads fields without swapping bytes.
"""

import struct
from enum import IntEnum, IntFlag
from typing import Final, NamedTuple

from dlcpd.contract.errors import MalformedDatagram
from dlcpd.contract.traffic import DROP_PRECEDENCES, MAX_CLASSES

VERSION: Final = 0xD5  # high nibble: "this is dlcpd", low nibble: version
HEADER_SIZE: Final = 40
KIND: Final = 1  # offset of the kind in a datagram
FLAGS: Final = 2  # likewise of the flags
SEALED: Final = 32  # bytes before the checksum, which covers them; see `checksum`
MAX_SEGMENTS: Final = 4096  # per transfer; bounds every bitmap that a peer can have made here
MAX_TRANSFERS: Final = 1 << 16  # from one rank to another in one operation; u16
MAX_STREAMS: Final = 1 << 16  # u16
MAX_PATHS: Final = 16
MAX_TAGS: Final = MAX_CLASSES * DROP_PRECEDENCES
MAX_ROUND: Final = 255  # of retransmission; u8
_LAYOUT: Final = struct.Struct("<BBBBIQHHHBBIIQ")
assert _LAYOUT.size == HEADER_SIZE  # noqa: S101  # constants only


class Kind(IntEnum):
    """The purpose of a datagram. Bodies of the control kinds are in `control`."""

    DATA = 1  # one segment of a transfer
    READY = 2  # rendezvous: the sender has submitted this operation
    READY_ACK = 3  # READY arrived, though the receiver may not be ready itself
    CREDIT = 4  # what arrived on each path; opens the window; answers PING
    END = 5  # a pass over a transfer has ended; asks what is missing
    NACK = 6  # bitmap of missing segments, asks for the next round
    COMPLETE = 7  # list of transfers that are complete at the receiver
    FINAL = 8  # bitmap of the segments that the receiver asks to waive, or, with WAIVED, waived
    ACK = 9  # answer to FINAL: the sender keeps those segments as residual
    PING = 10  # asks whether the peer lives and what has arrived
    DIGESTS = 11  # digests of results of a stream; with ASK: asks for the peer's
    PERMIT = 12  # segments of a transfer that its receiver may waive without asking
    PROBE = 14  # padded: tests whether a datagram of this length passes; see `probes`
    PROBE_ACK = 15  # the PROBE arrived
    PIECE = 16  # part of a datagram too long for its path; see `pieces`
    BUNDLE = 17  # several datagrams of one flow, path and tag; see `bundle`


class Flag(IntFlag):
    """Bits of the flags byte."""

    NONE = 0
    ENDING = 1  # in the last burst of a pass: segments that are missing soon after may be lost
    LATE = 2  # of READY: data came before the sender submitted, and were not kept
    ASK = 4  # a quarter of the sender's window has gone out since it last asked: credit now
    CARRIES = 8  # of READY: the bytes that its sender owes the peer follow the text
    WAIVED = 16  # of FINAL: under a PERMIT, the receiver has waived these segments


KNOWN_FLAGS: Final = int(Flag.ENDING | Flag.LATE | Flag.ASK | Flag.CARRIES | Flag.WAIVED)
_KINDS: Final = {int(kind): kind for kind in Kind}
_BUNDLE: Final = bytes([Kind.BUNDLE])
_READY: Final = bytes([Kind.READY])
ENDING: Final = int(Flag.ENDING)  # and those below: members of enums are slow to combine
ASK: Final = int(Flag.ASK)
LATE: Final = int(Flag.LATE)
CARRIES: Final = int(Flag.CARRIES)
WAIVED: Final = int(Flag.WAIVED)


def brings_data(datagram: bytes) -> bool:
    """Whether a control datagram may contain data of operations."""
    kind = datagram[KIND : KIND + 1]
    return kind == _BUNDLE or (
        kind == _READY and len(datagram) > FLAGS and bool(datagram[FLAGS] & CARRIES)
    )


class Key(NamedTuple):
    """A transfer in one direction of a flow. The kind of a datagram tells the direction: DATA, END
    and ACK refer to what their sender sends, NACK, FINAL and COMPLETE to what it receives."""

    stream: int
    operation: int
    transfer: int


class Header(NamedTuple):
    """First 40 bytes of every datagram.

    offset  0        1     2      3     4..7       8..15   16..17  18..19    20..21   22     23
            version  kind  flags  path  operation  token   stream  transfer  segment  round  tag
    offset  24..27         28..31                                              32..39
            packet_number  sent_at (microseconds of the sender's clock, wraps)  checksum
    """

    kind: Kind
    token: int  # u64, chosen by the receiver for this sender in this session
    operation: int = 0  # u32, counts the operations of a stream from 1
    stream: int = 0  # u16: a sequence of operations (core.stream)
    transfer: int = 0  # u16, counts the transfers from one rank to another in an operation from 0
    segment: int = 0  # u16, index in the transfer, < MAX_SEGMENTS
    round: int = 0  # u8; 0 = first pass, n = n-th retransmission
    tag: int = 0  # u8, < MAX_TAGS: traffic class and drop precedence (contract.traffic)
    flags: int = 0  # Flag bits
    path: int = 0  # u8, < MAX_PATHS: index of the sender's path
    packet_number: int = 0  # u32, of data: counts per flow, path and traffic class, never reused;
    # of PING and END: the last of data that was sent there; of other control 0
    sent_at: int = 0  # u32, microseconds
    checksum: int = 0  # u64; io fills it in as it sends

    @property
    def key(self) -> Key:
        """The transfer that it belongs to or refers to."""
        return Key(self.stream, self.operation, self.transfer)

    def pack(self) -> bytes:
        """40 bytes."""
        return _LAYOUT.pack(
            VERSION,
            self.kind,
            self.flags,
            self.path,
            self.operation,
            self.token,
            self.stream,
            self.transfer,
            self.segment,
            self.round,
            self.tag,
            self.packet_number,
            self.sent_at,
            self.checksum,
        )

    @classmethod
    def unpack_untrusted(cls, data: bytes | memoryview) -> "Header":
        """The header of a datagram.

        Raises: MalformedDatagram, and nothing else, for any input.
        """
        if len(data) < HEADER_SIZE:
            raise MalformedDatagram("short", f"{len(data)} bytes")
        (
            version,
            kind,
            flags,
            path,
            operation,
            token,
            stream,
            transfer,
            segment,
            round_,
            tag,
            packet_number,
            sent_at,
            checksum,
        ) = _LAYOUT.unpack_from(data)
        if version != VERSION:
            raise MalformedDatagram("version", f"{version:#x}")
        if kind not in _KINDS:
            raise MalformedDatagram("kind", str(kind))
        if flags & ~KNOWN_FLAGS:
            raise MalformedDatagram("flags", f"{flags:#x}")
        if path >= MAX_PATHS:
            raise MalformedDatagram("path", str(path))
        if segment >= MAX_SEGMENTS:
            raise MalformedDatagram("segment", str(segment))
        if tag >= MAX_TAGS:
            raise MalformedDatagram("tag", str(tag))
        return cls(
            _KINDS[kind],
            token,
            operation,
            stream,
            transfer,
            segment,
            round_,
            tag,
            flags,
            path,
            packet_number,
            sent_at,
            checksum,
        )
