"""PROBE and PROBE_ACK: does a datagram of this length pass? docs/wire.md, "Path MTU".

A PROBE has the length that it tests; its answer is always shorter, and goes only to holders of a
token. Parsers raise MalformedDatagram and nothing else.
"""

import struct
from typing import Final

from dlcpd.contract.errors import MalformedDatagram
from dlcpd.core.wire.header import HEADER_SIZE, Header, Kind

_PROBE: Final = struct.Struct("<I")
_ACK: Final = struct.Struct("<IH")
LEAST: Final = 64  # bytes of a PROBE; its answer has 46


def pack_probe(token: int, path: int, number: int, size: int) -> bytes:
    """A PROBE of `size` bytes in all, header included."""
    return (Header(Kind.PROBE, token, path=path).pack() + _PROBE.pack(number)).ljust(size, b"\0")


def unpack_probe_untrusted(data: bytes) -> int:
    """The number of a PROBE; its padding is ignored. Raises MalformedDatagram."""
    if len(data) < LEAST:
        raise MalformedDatagram("length", f"PROBE of {len(data)} bytes")
    (number,) = _PROBE.unpack_from(data, HEADER_SIZE)
    return int(number)


def pack_answer(token: int, path: int, number: int, received: int) -> bytes:
    """A PROBE_ACK: probe `number` of the peer's path came as `received` bytes."""
    return Header(Kind.PROBE_ACK, token, path=path).pack() + _ACK.pack(number, received)


def unpack_answer_untrusted(data: bytes) -> tuple[int, int]:
    """(number, bytes received) of a PROBE_ACK. Raises MalformedDatagram."""
    if len(data) != HEADER_SIZE + _ACK.size:
        raise MalformedDatagram("length", f"PROBE_ACK of {len(data)} bytes")
    number, received = _ACK.unpack_from(data, HEADER_SIZE)
    return number, received
