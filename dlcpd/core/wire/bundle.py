"""BUNDLE: several datagrams of one flow, path and tag in one, so that a peer wakes up once."""

import struct
from collections.abc import Sequence
from typing import Final

from dlcpd.contract.errors import MalformedDatagram
from dlcpd.core.wire.header import HEADER_SIZE, Header, Kind

# A part is a datagram without its token and checksum, after its length (u16).
_PART: Final = struct.Struct("<H")
_TOKEN: Final = slice(8, 16)  # of a header
_BEHIND_TOKEN: Final = slice(16, 32)  # up to the checksum
_NO_CHECKSUM: Final = bytes(8)
_PART_HEAD: Final = HEADER_SIZE - 16  # bytes
PART_SAVES: Final = 16 - _PART.size  # bytes by which a datagram shrinks as it joins a BUNDLE
MAX_PARTS: Final = 64
_NEVER_PARTS: Final = frozenset({Kind.BUNDLE, Kind.PIECE, Kind.PROBE, Kind.PROBE_ACK})


def pack(token: int, path: int, tag: int, parts: Sequence[bytes]) -> bytes:
    """A BUNDLE of at most MAX_PARTS datagrams of one flow, whose token and checksum it has."""
    out = [Header(Kind.BUNDLE, token, path=path, tag=tag).pack()]
    for part in parts:
        out += (
            _PART.pack(len(part) - HEADER_SIZE + _PART_HEAD),
            part[: _TOKEN.start],
            part[_BEHIND_TOKEN],
            part[HEADER_SIZE:],
        )
    return b"".join(out)


def unpack_untrusted(data: bytes) -> list[tuple[Header, bytes]]:
    """The parts of a BUNDLE whose header has been checked: header and datagram, with checksum 0.

    Raises: MalformedDatagram, and nothing else, for any bytes; then no part of it counts.
    """
    at, token, parts = HEADER_SIZE, data[_TOKEN], list[tuple[Header, bytes]]()
    while at < len(data):
        if at + _PART.size > len(data) or len(parts) == MAX_PARTS:
            raise MalformedDatagram("length", f"BUNDLE of {len(data)} bytes")
        (size,) = _PART.unpack_from(data, at)
        at += _PART.size
        if not _PART_HEAD <= size <= len(data) - at:
            raise MalformedDatagram("length", f"part of {size} bytes at {at} of {len(data)}")
        part = data[at : at + size]
        whole = b"".join((part[:8], token, part[8:_PART_HEAD], _NO_CHECKSUM, part[_PART_HEAD:]))
        header = Header.unpack_untrusted(whole)
        if header.kind in _NEVER_PARTS:
            raise MalformedDatagram("kind", f"{header.kind.name} in a BUNDLE")
        parts.append((header, whole))
        at += size
    return parts
