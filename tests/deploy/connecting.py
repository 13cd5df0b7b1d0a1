"""Connects to a session socket again and again until another daemon answers there.

Run inside the machine: connecting.py SOCKET. Every connection is greeted; says how many there were.
"""

import socket
import sys

from dlcpd.contract.frames import encode
from dlcpd.contract.messages import VERSION, Hello, Welcome
from dlcpd.ipc.seqpacket import receive_message


def greeted_by(path: str) -> str:
    """The key of the daemon that answers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(50.0)
        sock.connect(path)
        sock.sendall(encode(Hello(VERSION, "test")))
        answer, _ = receive_message(sock)
    assert isinstance(answer, Welcome), answer
    return answer.public_key


first = greeted_by(sys.argv[1])
print("greeted", flush=True)
connections = 1
while greeted_by(sys.argv[1]) == first:
    connections += 1
print(connections + 1, flush=True)
