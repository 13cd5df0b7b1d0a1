"""The TOS byte of IPv4 and IPv6: DSCP and ECN of sent and of received datagrams."""

import socket
import struct
from typing import Any, Final

ROOM: Final = 128  # bytes of ancillary data
_ECN: Final = 3  # bits of ECN in the byte
_KINDS: Final = (
    (socket.IPPROTO_IP, socket.IP_TOS),
    (socket.IPPROTO_IPV6, socket.IPV6_TCLASS),
)


def receive(sock: socket.socket) -> None:
    """Have the kernel pass the TOS byte of each received datagram."""
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
    else:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)


def received(ancillary: list[tuple[int, int, bytes]]) -> int:
    """The TOS byte of a received datagram; 0 if the kernel did not pass it."""
    return next((data[0] for level, kind, data in ancillary if (level, kind) in _KINDS), 0)


def send(sock: socket.socket, data: bytes, tos: int, to: Any = None) -> int:
    """Send; the error number if the kernel refuses it, or 0."""
    level, kind = _KINDS[sock.family == socket.AF_INET6]
    try:
        sock.sendmsg([data], [(level, kind, struct.pack("@i", tos))], socket.MSG_DONTWAIT, to)
    except OSError as exc:
        return exc.errno or -1
    return 0


def dscp(tos: int) -> int:
    """The six bits of DSCP."""
    return tos >> 2


def ecn(tos: int) -> int:
    """The two bits of ECN."""
    return tos & _ECN
