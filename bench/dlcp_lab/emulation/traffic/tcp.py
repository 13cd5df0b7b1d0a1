"""TCP flows as a program: `send` as fast as congestion control lets it, `receive` and count.

The receiver prints one JSON line per interval: seconds since its start, and the bytes that arrived
in that interval per flow, in the order of the connections. Its first line has no bytes.
"""

import argparse
import json
import selectors
import socket
import time
from typing import Final

BLOCK: Final = 64 * 1024  # bytes per system call
CONNECT_TIMEOUT: Final = 5.0  # seconds in which the receiver must have begun
TICK: Final = 0.1  # seconds; largest delay of the end if no data moves


def send(address: str, port: int, *, flows: int, congestion: str, seconds: float) -> None:
    """Keep `flows` connections full for some time."""
    end = time.monotonic() + seconds
    block = bytes(BLOCK)
    with selectors.DefaultSelector() as ready:
        for _ in range(flows):
            ready.register(_connect(address, port, congestion), selectors.EVENT_WRITE)
        while time.monotonic() < end:
            for key, _events in ready.select(TICK):
                assert isinstance(key.fileobj, socket.socket)  # noqa: S101  # registered above
                key.fileobj.send(block)


def receive(port: int, *, interval: float) -> None:
    """Count arriving bytes until all flows have ended."""
    with selectors.DefaultSelector() as ready, socket.create_server(("", port)) as listener:
        ready.register(listener, selectors.EVENT_READ)
        counts: dict[int, int] = {}
        start = time.monotonic()
        report = start + interval
        print(json.dumps({"seconds": 0.0, "bytes": []}), flush=True)
        while not counts or len(ready.get_map()) > 1:
            for key, _events in ready.select(TICK):
                if key.fileobj is listener:
                    flow, _address = listener.accept()
                    ready.register(flow, selectors.EVENT_READ)
                    counts[flow.fileno()] = 0
                else:
                    assert isinstance(key.fileobj, socket.socket)  # noqa: S101  # as above
                    _take(ready, key.fileobj, counts)
            if time.monotonic() >= report:
                line = {"seconds": report - start, "bytes": list(counts.values())}
                print(json.dumps(line), flush=True)
                counts = dict.fromkeys(counts, 0)
                report += interval


def _connect(address: str, port: int, congestion: str) -> socket.socket:
    deadline = time.monotonic() + CONNECT_TIMEOUT
    while True:
        flow = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        flow.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
        flow.settimeout(CONNECT_TIMEOUT)
        try:
            flow.connect((address, port))
        except ConnectionRefusedError:
            flow.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(TICK)
        else:
            flow.setblocking(False)
            return flow


def _take(ready: selectors.BaseSelector, flow: socket.socket, counts: dict[int, int]) -> None:
    try:
        got = len(flow.recv(4 * BLOCK))
    except ConnectionError:
        got = 0
    counts[flow.fileno()] += got
    if not got:
        ready.unregister(flow)  # stays open: its descriptor is its key in `counts`


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    roles = parser.add_subparsers(dest="role", required=True)
    sender = roles.add_parser("send")
    sender.add_argument("address")
    sender.add_argument("port", type=int)
    sender.add_argument("--flows", type=int, default=1)
    sender.add_argument("--congestion", default="cubic", help="congestion control, as in tcp(7)")
    sender.add_argument("--seconds", type=float, default=10.0)
    receiver = roles.add_parser("receive")
    receiver.add_argument("port", type=int)
    receiver.add_argument("--interval", type=float, default=0.5, help="seconds")
    options = parser.parse_args()
    if options.role == "receive":
        receive(options.port, interval=options.interval)
        return
    send(
        options.address,
        options.port,
        flows=options.flows,
        congestion=options.congestion,
        seconds=options.seconds,
    )


if __name__ == "__main__":
    main()
