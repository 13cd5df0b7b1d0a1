"""Small programs that tests run on the hosts of a fabric, and what they found."""

import json
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise

from dlcp_lab.emulation import Fabric

PORT = 9000
PROBES = 64
FIRST = 30_000  # source port of the first datagram
_RECEIVE = """
import json, select, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
s.bind(("", int(sys.argv[1])))
print("bound", flush=True)
seen = []
sources = [s, sys.stdin]
while len(seen) < int(sys.argv[2]):
    ready = select.select(sources, [], [], 30 if sys.stdin in sources else 0.5)[0]
    if s in ready:
        data, address = s.recvfrom(2048)
        seen.append([address[1], int.from_bytes(data[:4], "big")])
    elif ready:
        sources.remove(sys.stdin)  # all is sent
    else:
        break
print(json.dumps(seen))
"""
_SEND = """
import socket, sys, time
address, port, first, ports, count = sys.argv[1], *map(int, sys.argv[2:])
for number in range(count):
    if number < ports:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.bind(("", first + number))
    s.sendto(number.to_bytes(4, "big") + bytes(96), (address, port))
    if number % 32 == 31:
        time.sleep(0.001)
"""
_TRACE = """
import socket, sys, time
IP_RECVERR, ERROR_SIZE = 11, 16  # linux/in.h; struct sock_extended_err, then the answerer
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
s.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
s.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, int(sys.argv[2]))
s.setblocking(False)
for port in range(int(sys.argv[3])):
    for again in range(3):  # an answer to an earlier one fails this one, unsent
        try:
            s.sendto(b"probe", (sys.argv[1], 33434 + port))
            break
        except OSError:
            continue
time.sleep(0.2)
seen = []
while True:
    try:
        _, ancillary, _, _ = s.recvmsg(512, 512, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)
    except OSError:
        break
    seen.append(socket.inet_ntoa(ancillary[0][2][ERROR_SIZE + 4:ERROR_SIZE + 8]))
print(*sorted(seen))
"""


def python(program: str, *arguments: object) -> list[str]:
    """Command line of a program."""
    return [sys.executable, "-c", program, *map(str, arguments)]


def arrivals(
    net: Fabric, source: int, address: str, target: int, *, ports: int = 1, count: int = 0
) -> list[tuple[int, int]]:
    """Source port and number of each datagram that arrives, in order.

    `count` (or one per port) are sent; each of the first ones from a port of its own, from
    FIRST on, the others from the last.
    """
    sent = count or ports
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    receiver = net.run(target, python(_RECEIVE, PORT, sent), **pipes)
    assert receiver.stdout is not None and receiver.stdin is not None
    with receiver.stdout as lines, receiver.stdin as end:
        assert lines.readline() == "bound\n"
        sender = net.run(source, python(_SEND, address, PORT, FIRST, ports, sent))
        assert sender.wait(30) == 0
        end.close()
        return [(port, number) for port, number in json.loads(lines.readline())]


def answers(net: Fabric, source: int, address: str, hops: int) -> list[str]:
    """Who says that the time to live has ended, of PROBES datagrams to a port each, sorted."""
    trace = python(_TRACE, address, hops, PROBES)
    child = net.run(source, trace, stdout=subprocess.PIPE, text=True)
    said: str = child.communicate(timeout=30)[0]
    return said.split()


def runs_of_missing(numbers: Sequence[int], count: int) -> list[int]:
    """Lengths of the runs that are missing among 0 .. count-1."""
    edges = [-1, *sorted(numbers), count]
    return [high - low - 1 for low, high in pairwise(edges) if high - low > 1]
