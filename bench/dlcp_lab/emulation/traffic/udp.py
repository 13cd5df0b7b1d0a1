"""UDP at a constant rate or in bursts, as a program: `send`, and `receive`, which counts by TOS.

Bursts follow the machine's monotonic clock, so that senders with equal times burst together: an
incast. The receiver prints one JSON line per interval with its totals.
"""

import argparse
import json
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Final

UDP_SEGMENT: Final = 103  # linux/udp.h: one system call, many datagrams
MAX_SEGMENTS: Final = 40  # per call; a call takes at most 64 KiB
TICK: Final = 0.001  # seconds of traffic per round
RECEIVE_BUFFER: Final = 4 * 1024 * 1024  # bytes; a slow reader must not look like a lossy fabric


@dataclass(frozen=True, slots=True)
class DatagramStream:
    """A stream of datagrams."""

    rate: int  # bits of payload per second, while on
    payload: int  # bytes per datagram
    tos: tuple[int, ...]  # TOS bytes, which alternate
    on: float  # seconds per burst
    off: float  # seconds between bursts; 0: constant
    seconds: float  # duration of the stream


def send(address: str, port: int, stream: DatagramStream) -> None:
    """Send datagrams. A host that is too slow for the rate sends less."""
    bytes_per_second = stream.rate / 8
    batch = min(MAX_SEGMENTS, max(1, int(bytes_per_second * TICK / stream.payload)))
    data = bytes(batch * stream.payload)
    sockets = cycle([_socket(address, port, tos, stream.payload) for tos in stream.tos])
    due = time.monotonic()
    for now in _moments(due + stream.seconds):
        if stream.off and now % (stream.on + stream.off) >= stream.on:
            continue
        due = max(due, now - 10 * TICK)  # a pause is not compensated
        while due <= now:
            _send(next(sockets), data)
            due += len(data) / bytes_per_second


def receive(port: int, *, interval: float) -> None:
    """Count datagrams by TOS byte until SIGTERM, which causes a last report."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    counts: dict[int, int] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        receiver.bind(("", port))
        receiver.settimeout(interval)
        _report(counts)
        try:
            _count(receiver, counts, interval)
        finally:
            _report(counts)


def _count(receiver: socket.socket, counts: dict[int, int], interval: float) -> None:
    report = time.monotonic() + interval
    while True:
        try:
            _data, ancillary, _flags, _address = receiver.recvmsg(65536, 64)
            tos = int(ancillary[0][2][0])
            counts[tos] = counts.get(tos, 0) + 1
        except TimeoutError:
            pass
        if time.monotonic() >= report:
            _report(counts)
            report += interval


def _report(counts: dict[int, int]) -> None:
    print(json.dumps({"datagrams": counts}), flush=True)


def _moments(end: float) -> Iterator[float]:
    while (now := time.monotonic()) < end:
        yield now
        time.sleep(TICK)


def _send(sock: socket.socket, data: bytes) -> None:
    try:
        sock.send(data)
    except OSError:  # no listener, or the link is cut: neither stops a background flow
        return


def _socket(address: str, port: int, tos: int, payload: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
    made.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("i", payload))
    made.connect((address, port))
    return made


def main() -> None:
    """Command line."""
    options = _parser().parse_args()
    if options.role == "receive":
        receive(options.port, interval=options.interval)
        return
    stream = DatagramStream(
        options.rate, options.payload, tuple(options.tos), options.on, options.off, options.seconds
    )
    send(options.address, options.port, stream)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    roles = parser.add_subparsers(dest="role", required=True)
    sender = roles.add_parser("send")
    sender.add_argument("address")
    sender.add_argument("port", type=int)
    sender.add_argument("--rate", type=int, default=10_000_000, help="bits of payload per second")
    sender.add_argument("--payload", type=int, default=1400, help="bytes")
    sender.add_argument(
        "--tos", type=int, nargs="+", default=[0], help=("bytes; the flow sends sizes in turn")
    )
    sender.add_argument("--on", type=float, default=1.0, help="seconds per burst")
    sender.add_argument(
        "--off", type=float, default=0.0, help=("seconds between bursts; 0: constant")
    )
    sender.add_argument("--seconds", type=float, default=10.0)
    receiver = roles.add_parser("receive")
    receiver.add_argument("port", type=int)
    receiver.add_argument("--interval", type=float, default=0.5, help="seconds")
    return parser


if __name__ == "__main__":
    main()
