"""sendmmsg and recvmmsg through ctypes: the two system calls that Python's socket lacks.

Struct layouts are Linux's, 64-bit little-endian (sendmmsg(2), recvmmsg(2), cmsg(3),
udp(7)). Everything is built as numpy arrays, so a batch of a thousand datagrams costs a
handful of vector operations and one call.
"""

import ctypes
import errno
import os
import socket
import struct
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.core.wire.header import HEADER_SIZE

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_VOID: Final = ctypes.c_void_p
_BYTE: Final = ctypes.c_char

MSGHDR: Final = np.dtype(
    [
        ("name", "<u8"),
        ("name_size", "<u4"),
        ("_0", "<u4"),
        ("iov", "<u8"),
        ("iov_count", "<u8"),
        ("control", "<u8"),
        ("control_size", "<u8"),
        ("flags", "<i4"),
        ("_1", "<u4"),
        ("size", "<u4"),
        ("_2", "<u4"),
    ]
)
assert MSGHDR.itemsize == 64  # noqa: S101  # struct mmsghdr

MAX_UDP: Final = 65507  # bytes of payload of one IPv4 UDP message (RFC 768, RFC 791)
MAX_RUN: Final = 64  # segments per GSO message on every kernel that has it (udp(7))
_TOS: Final = 24  # bytes of a control message, its padding included
_BOTH: Final = 48  # with the one for the size of GSO's datagrams
UDP_SEGMENT: Final = 103  # linux/udp.h; level IPPROTO_UDP
UDP_GRO: Final = 104
SO_RCVBUFFORCE: Final = 33
SO_SNDBUFFORCE: Final = 32
SO_TIMESTAMPNS: Final = 35
_IP_MTU_DISCOVER, _IP_MTU = 10, 14  # linux/in.h; Python 3.11 has no names for these
_IPV6_MTU_DISCOVER, _IPV6_MTU = 23, 24  # linux/in6.h
_PMTUDISC_PROBE: Final = 3  # the same for both
MSG_DONTWAIT: Final = int(socket.MSG_DONTWAIT)


def address(array: NDArray[Any]) -> int:
    """Address of the first byte of a contiguous array."""
    if array.size and array.flags.writeable:  # four times as fast as the other way
        return ctypes.addressof(_BYTE.from_buffer(array))  # type: ignore[arg-type]  # a buffer
    return int(array.__array_interface__["data"][0])


def send_many(fd: int, messages: int, first: int, count: int) -> int:
    """Send `count` messages from number `first` of the array at address `messages`; returns how
    many were sent.

    Raises OSError when none was.
    """
    start = messages + first * MSGHDR.itemsize
    sent: int = _LIBC.sendmmsg(fd, _VOID(start), count, MSG_DONTWAIT)
    if sent < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return sent


def receive_many(fd: int, messages: int, count: int) -> int:
    """Messages received into the array at address `messages`, 0 when none waits."""
    got: int = _LIBC.recvmmsg(fd, _VOID(messages), count, MSG_DONTWAIT, None)
    if got < 0:
        number = ctypes.get_errno()
        if number in (errno.EAGAIN, errno.EINTR):
            return 0
        raise OSError(number, os.strerror(number))
    return got


def pack_address(family: int, host: str, port: int) -> NDArray[np.uint8]:
    """A sockaddr_in or sockaddr_in6 as bytes the kernel can read."""
    raw = socket.inet_pton(family, host.partition("%")[0])
    if family == socket.AF_INET:
        packed = struct.pack("<H", family) + struct.pack("!H4s8x", port, raw)
    else:
        scope = socket.if_nametoindex(host.partition("%")[2]) if "%" in host else 0
        packed = struct.pack("<H", family) + struct.pack("!HI16s", port, 0, raw)
        packed += struct.pack("<I", scope)
    return np.frombuffer(packed, np.uint8).copy()  # writeable, for a fast `address`


def tos_control(family: int, tos: int) -> NDArray[np.uint8]:
    """A control message that sets the TOS byte (IPv4) or traffic class (IPv6) of a burst."""
    if family == socket.AF_INET:
        level, kind = socket.IPPROTO_IP, socket.IP_TOS
    else:
        level, kind = socket.IPPROTO_IPV6, socket.IPV6_TCLASS
    return np.frombuffer(struct.pack("<QiiiI", 20, level, kind, tos, 0), np.uint8).copy()


def segment_control(size: int) -> NDArray[np.uint8]:
    """A control message that makes the kernel cut a burst into datagrams of `size` bytes."""
    packed = struct.pack("<QiiHHI", 18, socket.IPPROTO_UDP, UDP_SEGMENT, size, 0, 0)
    return np.frombuffer(packed, np.uint8).copy()


def never_fragment(sock: socket.socket) -> None:
    """Send with "don't fragment", regardless of the kernel's estimate of the path MTU: only the
    device limits a datagram, and MTU discovery is this engine's own (RFC 8899, ip(7))."""
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _PMTUDISC_PROBE)
    else:
        sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PMTUDISC_PROBE)


def route_mtu(local: str, remote: str) -> int:
    """Bytes of the largest packet that the kernel would send from `local` to `remote`; 0 when
    there is no route, or no descriptor to ask with. It asks the routing table and sends nothing."""
    family = socket.AF_INET6 if ":" in local else socket.AF_INET
    level, option = (
        (socket.IPPROTO_IPV6, _IPV6_MTU)
        if family == socket.AF_INET6
        else (socket.IPPROTO_IP, _IP_MTU)
    )
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as asking:
            asking.bind((local, 0))
            asking.connect((remote, 9))
            return asking.getsockopt(level, option)
    except OSError:
        return 0


def longest_run(segment_size: int) -> int:
    """The most datagrams that GSO cuts from one message."""
    return max(min(MAX_UDP // (HEADER_SIZE + segment_size), MAX_RUN), 1)


class Controls:
    """Control messages by tag: the TOS byte, and the size of GSO's datagrams."""

    spacing: Final = _BOTH  # bytes from one tag to the next

    def __init__(self, family: int, tos: list[int]) -> None:
        self._rows = np.zeros((len(tos), _BOTH), np.uint8)
        self._rows[:, :_TOS] = np.stack([tos_control(family, t) for t in tos])
        self._at = address(self._rows)
        self._size = 0

    def for_size(self, segment_size: int) -> int:
        """Address of the rows, for datagrams with `segment_size` bytes of payload."""
        if segment_size != self._size:
            self._size = segment_size
            self._rows[:, _TOS:] = segment_control(HEADER_SIZE + segment_size)
        return self._at

    @staticmethod
    def size(*, gso: bool) -> int:
        """Bytes of the control messages of one tag."""
        return _BOTH if gso else _TOS
