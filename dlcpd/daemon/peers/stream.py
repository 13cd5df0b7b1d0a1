"""A TCP connection between controls: its options, and its frames one at a time."""

import socket
from typing import Final

from dlcpd.daemon.peers.frames import FrameReader

CHUNK: Final = 65_536  # bytes read at once
PROBE: Final = (
    5  # seconds of silence until TCP asks whether the other end is there, and between asks
)
PROBES: Final = 2  # unanswered, until a connection that a dead network left half open ends
UNACKNOWLEDGED: Final = 15_000  # ms that sent data may be, for the same


class Stream:
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


def set_options(sock: socket.socket) -> None:
    """What both ends of a connection have."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED)
