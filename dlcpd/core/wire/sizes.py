"""How long segments, datagrams and packets may be, in bytes."""

from typing import Final

from dlcpd.core.wire.header import HEADER_SIZE

LEAST_BODY: Final = 24  # bytes after the header of a PROBE, whose answer has 6
UNIT: Final = 64  # of segments; a multiple of every dtype, and of a cache line
BASE: Final = 1152  # of a segment: 1152 + 40 + 48 fit 1280
LEAST_MTU: Final = 1280  # the MTU that BASE needs: the least MTU of IPv6 (RFC 8200 section 5)
MAX_SEGMENT: Final = 8896  # 8896 + 40 + 48 (IPv6 and UDP) fit a 9000-byte MTU


def segment_within(mtu: int, headers: int) -> int:
    """The largest segment whose packet is at most `mtu` bytes; may be 0.

    `headers`: bytes of IP and UDP, 28 or 48, plus what io adds to a datagram.
    """
    return max((mtu - headers - HEADER_SIZE) // UNIT * UNIT, 0)


def datagram_size(segment: int) -> int:
    """UDP payload bytes of a datagram with a segment of that size, or of a probe for it."""
    return HEADER_SIZE + max(segment, LEAST_BODY)
