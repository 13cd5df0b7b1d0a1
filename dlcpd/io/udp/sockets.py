"""UDP sockets: bound, with their buffers, and the TOS bytes of tags."""

import socket
from typing import Final

from dlcpd.contract.errors import AddressUnavailable
from dlcpd.contract.traffic import DROP_PRECEDENCES, traffic_classes
from dlcpd.core.wire.header import MAX_TAGS
from dlcpd.io.udp import mmsg

_BOTH: Final = ("both", "shuffled")  # settings that signal drop precedences by DSCP and by ECN


def tos_of_tags(drop_precedence: str = "both") -> list[int]:
    """The TOS byte of each tag: DSCP and ECN of its class and drop precedence, as far as
    `drop_precedence` (a setting of [network]) signals it by either.

    A tag that the table lacks is sent as its class's last drop precedence, or as the last class.
    """
    by_dscp, by_ecn = drop_precedence in ("dscp", *_BOTH), drop_precedence in ("ecn", *_BOTH)
    classes = list(traffic_classes().values())
    rows = [classes[min(tag // DROP_PRECEDENCES, len(classes) - 1)] for tag in range(MAX_TAGS)]
    ranks = [min(tag % DROP_PRECEDENCES, len(row.dscp) - 1) for tag, row in enumerate(rows)]
    return [
        row.dscp[d * by_dscp] << 2 | row.ecn[d * by_ecn] for row, d in zip(rows, ranks, strict=True)
    ]


def ancillary(family: int, tos: int) -> list[tuple[int, int, bytes]]:
    """Ancillary data that make sendmsg use this TOS byte."""
    level, kind = socket.IPPROTO_IP, socket.IP_TOS
    if family == socket.AF_INET6:
        level, kind = socket.IPPROTO_IPV6, socket.IPV6_TCLASS
    return [(level, kind, tos.to_bytes(4, "little"))]


def bound(family: int, host: str, port: int) -> socket.socket:
    """A socket that does not block, at this address. Raises: AddressUnavailable."""
    sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        sock.bind((host, port))
    except OSError as exc:
        sock.close()
        raise AddressUnavailable(
            f"cannot bind UDP {host} port {port}: {exc.strerror}; give [network] paths an "
            f"address of this host and a free port (0 = any)"
        ) from exc
    return sock


def size_buffers(sock: socket.socket, wanted: int) -> int:
    """Ask for buffers, beyond the sysctl limit if permitted; returns the receive bytes granted."""
    for force, plain in (
        (mmsg.SO_RCVBUFFORCE, socket.SO_RCVBUF),
        (mmsg.SO_SNDBUFFORCE, socket.SO_SNDBUF),
    ):
        try:
            sock.setsockopt(socket.SOL_SOCKET, force, wanted)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, plain, wanted)
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2  # the kernel doubles it


def offload(sock: socket.socket, option: int, value: int) -> bool:
    """Turn on an offload, which the kernel may not know."""
    try:
        sock.setsockopt(socket.IPPROTO_UDP, option, value)
    except OSError:
        return False
    return True


def receive_marks(sock: socket.socket) -> None:
    """Datagrams come with their TOS byte and the time of their arrival."""
    sock.setsockopt(socket.SOL_SOCKET, mmsg.SO_TIMESTAMPNS, 1)
    if sock.family == socket.AF_INET:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
    else:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
