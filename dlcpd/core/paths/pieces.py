"""Splits datagrams that are too long for a path into PIECEs, and reassembles them.

For operations that began before the MTU of a path fell: their segment size is agreed and stays. IP
fragmentation does not help: a link that drops in silence causes none, IPv6 routers never fragment,
firewalls drop fragments, and 16 bits of identification mix datagrams up at high rates (RFC 4963).
"""

import struct
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from dlcpd.contract.errors import MalformedDatagram
from dlcpd.core.room import Room
from dlcpd.core.wire.header import HEADER_SIZE, Kind
from dlcpd.core.wire.sizes import MAX_SEGMENT

_PLACE: Final = struct.Struct("<IHH")  # number, length of the whole, offset in it
OVERHEAD: Final = HEADER_SIZE + _PLACE.size
_TOKEN: Final = slice(8, 16)  # of a header
LEAST_PIECE: Final = 512  # bytes of a piece where no path MTU is known: 512 + 28 fit 576 (RFC 791)
LONGEST: Final = HEADER_SIZE + MAX_SEGMENT  # bytes of a whole
MAX_PARTIAL: Final = 256  # of a flow: 2.3 MB at worst; what is evicted is retransmitted like a loss
MAX_OF_ALL: Final = 32 << 20  # bytes of all flows of an engine; beyond it each keeps one datagram
PART_HELD: Final = 100  # bytes that a piece takes beside its own
MAX_PIECES: Final = -(-LONGEST // (LEAST_PIECE - OVERHEAD))  # of one whole


def cut(data: bytes, number: int, size: int) -> Iterator[bytes]:
    """A datagram as datagrams of at most `size` bytes, but not below LEAST_PIECE. `number`, a u32,
    identifies its pieces; each begins with the header of the datagram, with another kind."""
    head = data[:1] + bytes([Kind.PIECE]) + data[2:HEADER_SIZE]
    room = max(size, LEAST_PIECE) - OVERHEAD
    for offset in range(0, len(data), room):
        yield head + _PLACE.pack(number, len(data), offset) + data[offset : offset + room]


@dataclass(slots=True)
class Reassembly:
    """Reassembles the pieces of one flow."""

    of_all: Room = field(default_factory=lambda: Room(MAX_OF_ALL))  # of all flows of the engine
    _partial: OrderedDict[tuple[int, int], dict[int, bytes]] = field(default_factory=OrderedDict)
    # (number, length) -> offset -> bytes

    def add(self, data: bytes) -> bytes | None:
        """Take in a PIECE; returns the whole datagram if this piece completes it.

        Raises: MalformedDatagram, and nothing else, for any bytes.
        """
        if len(data) <= OVERHEAD:
            raise MalformedDatagram("length", f"PIECE of {len(data)} bytes")
        number, total, offset = _PLACE.unpack_from(data, HEADER_SIZE)
        part = data[OVERHEAD:]
        if total > LONGEST or offset + len(part) > total:
            raise MalformedDatagram("body", f"{len(part)} bytes at {offset} of {total}")
        parts = self._partial.setdefault((number, total), {})
        if len(parts) >= MAX_PIECES:
            raise MalformedDatagram("body", f"more than {MAX_PIECES} pieces")
        before = parts.get(offset)
        parts[offset] = part
        self.of_all.used += len(part) + PART_HELD if before is None else len(part) - len(before)
        if sum(map(len, parts.values())) < total:
            self._forget_oldest()
            return None
        self.of_all.used -= _held(self._partial.pop((number, total)))
        if not _in_a_row(parts):
            raise MalformedDatagram("body", "pieces that overlap")
        whole = b"".join(parts[at] for at in sorted(parts))
        if whole[_TOKEN] != data[_TOKEN]:  # checksums were verified for the pieces' token alone
            raise MalformedDatagram("token", "pieces of another flow's datagram")
        return whole

    def clear(self) -> None:
        """The flow is over."""
        while self._partial:
            self.of_all.used -= _held(self._partial.popitem()[1])

    def _forget_oldest(self) -> None:
        partial = self._partial
        while len(partial) > MAX_PARTIAL or (self.of_all.full and len(partial) > 1):
            self.of_all.used -= _held(partial.popitem(last=False)[1])


def _held(parts: dict[int, bytes]) -> int:
    return sum(map(len, parts.values())) + PART_HELD * len(parts)


def _in_a_row(parts: dict[int, bytes]) -> bool:
    end = 0
    for offset in sorted(parts):
        if offset != end:
            return False
        end += len(parts[offset])
    return True
