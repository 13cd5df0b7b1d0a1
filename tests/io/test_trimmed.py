"""Linux drops a datagram that a switch has trimmed: docs/switches-platforms.md, Packet trimming."""

import socket
import struct

import pytest

pytestmark = pytest.mark.netns  # for raw sockets

ADDRESS = "127.0.0.1"
UDP_HEADER = 8  # bytes
WHOLE, TRIMMED = 1400, 248  # bytes of payload


def test_a_trimmed_datagram_does_not_reach_a_socket() -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP) as sender,
    ):
        receiver.bind((ADDRESS, 0))
        receiver.settimeout(10)
        port: int = receiver.getsockname()[1]

        def send(payload: bytes, said: int) -> None:
            """Send a datagram whose UDP header says `said` bytes of payload."""
            header = struct.pack("!HHHH", port, port, UDP_HEADER + said, 0)
            sender.sendto(header + payload, (ADDRESS, port))

        send(b"t" * TRIMMED, WHOLE)
        send(b"w" * WHOLE, WHOLE)
        assert receiver.recv(2 * WHOLE) == b"w" * WHOLE
