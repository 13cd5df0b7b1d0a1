"""ICMP messages of a UDP socket: the routers of a path, closed ports, datagrams too big for a link.

Routers are found as by traceroute, without root. A PING leaves the path's own socket with a small
TTL, so that it is hashed as data are; the router where it expires sends it back (ICMP time
exceeded, RFC 792; ICMPv6, RFC 4443), and the kernel returns it in the socket's error queue (ip(7),
IP_RECVERR).
"""

import errno
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from dlcpd.ipc import kernel_errors

IPV6_RECVERR: Final = 25  # linux/in6.h; Python 3.11 has no names for these
IP_RECVERR: Final = 11  # linux/in.h
_ERROR: Final = struct.Struct("@IBBBBII")  # struct sock_extended_err, linux/errqueue.h
_LOCAL: Final = 1  # origin: this host itself, which tells the caller as well
_SIZE: Final = 2048  # bytes of the quoted datagram; a PING has 32
MAX_ERRORS: Final = 64  # read per wake-up; the rest causes the next one


class IcmpNews(NamedTuple):
    """An ICMP message about a datagram that left this socket."""

    quoted: bytes  # the beginning of the datagram, as far as the message has it
    router: str  # sender of the message
    mtu: int  # of the link that the datagram was too big for; 0 in other messages
    refused: bool = False  # it reached a host, and its port there is closed


class RouteProbe:
    """Sends probes from one socket, and reads the ICMP messages about all its datagrams."""

    def __init__(self, sock: socket.socket, counters: Counter[str] | None = None) -> None:
        """`counters` counts failed calls by their names."""
        self._socket = sock
        self._counters = Counter[str]() if counters is None else counters
        v6 = sock.family == socket.AF_INET6
        self._level = socket.IPPROTO_IPV6 if v6 else socket.IPPROTO_IP
        self._receive = IPV6_RECVERR if v6 else IP_RECVERR
        self._limit = socket.IPV6_HOPLIMIT if v6 else socket.IP_TTL
        sock.setsockopt(self._level, self._receive, 1)

    def send(self, data: bytes, hops: int, to: tuple[str, int]) -> None:
        """Send a datagram that expires at router number `hops`; one that cannot leave is lost."""
        limit = [(self._level, self._limit, struct.pack("@i", hops))]
        try:
            self._socket.sendmsg([data], limit, socket.MSG_DONTWAIT, to)
        except OSError as exc:  # repeated: see the rounds of the search
            kernel_errors.count(self._counters, "probe", exc)

    def answers(self) -> Iterator[IcmpNews]:
        """The messages that wait in the error queue, up to MAX_ERRORS."""
        for _ in range(MAX_ERRORS):
            try:
                data, ancillary, _, _ = self._socket.recvmsg(
                    _SIZE, 512, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT
                )
            except OSError as exc:
                if exc.errno != errno.EAGAIN:  # else nothing waits
                    kernel_errors.count(self._counters, "error_queue", exc)
                return  # waiting messages cause the next wake-up
            for level, kind, payload in ancillary:
                if (level, kind) == (self._level, self._receive):
                    number, origin, _, _, _, info, _ = _ERROR.unpack_from(payload)
                    router = self._router(payload)
                    if router and origin != _LOCAL:
                        mtu = info if number == errno.EMSGSIZE else 0
                        yield IcmpNews(data, router, mtu, number == errno.ECONNREFUSED)

    def _router(self, payload: bytes) -> str:
        """Sender of the ICMP message; empty if there is none."""
        address = payload[_ERROR.size :]
        if self._level == socket.IPPROTO_IP and len(address) >= 8:
            return socket.inet_ntop(socket.AF_INET, address[4:8])
        if self._level == socket.IPPROTO_IPV6 and len(address) >= 24:
            return socket.inet_ntop(socket.AF_INET6, address[8:24])
        return ""
