"""A process that floods a UDP port of 127.0.0.1: `python -m tests.attack.flood PORT RATE SHAPE`.

RATE is in datagrams per second, 0 for as many as go. It ends when its standard input does, and
says how many it has sent.
"""

import argparse
import secrets
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np

from dlcpd.core.wire.header import Header, Kind
from dlcpd.io.udp import mmsg
from tests.io.engines import PATIENCE, ROOT, token

SIZE: Final = 1440  # bytes of a datagram: as long as data are
BATCH: Final = 64  # datagrams of a system call
TICK: Final = 1e-3  # seconds
SHAPES: Final = ("junk", "version", "insider", "bursts")


def payload(shape: str) -> bytes:
    """`junk` and GSO `bursts` of it; with the right `version`; and what an `insider` can send who
    has seen a datagram, and so knows what all tokens begin with."""
    if shape == "version":
        return Header(Kind.DATA, secrets.randbits(48) | 1 << 48).pack().ljust(SIZE, b"x")
    if shape == "insider":
        return Header(Kind.DATA, token(0, 1) ^ 1 << 40, operation=1).pack().ljust(SIZE, b"x")
    return bytes(44 * SIZE if shape == "bursts" else SIZE)


@contextmanager
def flood(port: int, rate: int, shape: str) -> Iterator[None]:
    """Flood while the body runs."""
    command = [sys.executable, "-m", "tests.attack.flood", str(port), str(rate), shape]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
    assert process.stdin and process.stdout
    try:
        assert process.stdout.readline() == b"floods\n"
        yield
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(PATIENCE)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("rate", type=int)
    parser.add_argument("shape", choices=SHAPES)
    options = parser.parse_args()
    source = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    source.connect(("127.0.0.1", options.port))
    data = np.frombuffer(payload(options.shape), np.uint8).copy()
    if options.shape == "bursts":
        source.setsockopt(socket.IPPROTO_UDP, mmsg.UDP_SEGMENT, struct.pack("=i", SIZE))
    iov = np.array([[mmsg.address(data), len(data)]], np.uint64)
    messages = np.zeros(BATCH, mmsg.MSGHDR)
    messages["iov"], messages["iov_count"] = mmsg.address(iov), 1
    sys.stdout.write("floods\n")
    sys.stdout.flush()
    begin, sent, each = time.monotonic(), 0, len(data) // SIZE
    while not select.select([sys.stdin], [], [], 0)[0]:
        due = (time.monotonic() - begin) * options.rate - sent if options.rate else BATCH * each
        if due < each:
            time.sleep(TICK)
            continue
        count = min(int(due) // each, BATCH)
        sent += each * mmsg.send_many(source.fileno(), mmsg.address(messages), 0, count)


if __name__ == "__main__":
    main()
