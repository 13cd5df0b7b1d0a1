"""A TCP connection between control processes: its options, and its frames one at a time."""

import socket
import struct
from typing import Final

from dlcpd.daemon.peers.frames import FrameReader

CHUNK: Final = 65_536  # bytes read at once
PROBE: Final = 5  # seconds of silence until TCP sends a keepalive probe, and between probes
PROBES: Final = 2  # unanswered probes that end a half-open connection
UNACKNOWLEDGED: Final = 15_000  # ms until unacknowledged data end it
MIN_RTT: Final = struct.Struct("=148xI")  # the field of Linux's struct tcp_info; in microseconds
NO_RTT: Final = (1 << 32) - 1  # nothing was acknowledged yet


class ByteStream:
    """Owns `sock`, which does not block."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.reader = sock, FrameReader()

    def receive(self) -> bytes | None:
        """The greeting, or the next frame's body, if all of it is here; reads nothing beyond it.

        Raises: BrokenStream; OSError, EOFError when the connection has ended.
        """
        while True:
            try:
                data = self.sock.recv(min(self.reader.wanted, CHUNK))
            except (BlockingIOError, InterruptedError):
                return None
            if not data:
                raise EOFError("the other side closed the connection")
            if whole := self.reader.feed(data):
                return whole


def least_round_trip(sock: socket.socket) -> int:
    """Microseconds of the shortest round trip that the kernel has seen, in the handshake for
    instance; 0 if it tells none."""
    try:
        [least] = MIN_RTT.unpack(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, MIN_RTT.size))
    except (OSError, struct.error):  # it is not connected; a kernel before 4.6
        return 0
    return 0 if least == NO_RTT else int(least)


def set_options(sock: socket.socket) -> None:
    """Set the options that both ends of a connection have."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED)
