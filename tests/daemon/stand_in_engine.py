"""A child process that speaks dlcpd.io.control_frames and moves no data.

It tells each client on its lane what control commanded, `[name, fields]`, and emits
the events that a client asks for in the same form. `--mode` chooses how it misbehaves.
Started by run_with_stand_in.py in place of the engine.
"""

import argparse
import contextlib
import os
import select
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import msgpack

from dlcpd.io import commands, control_events, report_rows
from dlcpd.io.control_frames import pack, unpack
from dlcpd.ipc.seqpacket import receive, receive_now

EVENT = 32 << 10  # bytes of peers in one event of a report
ENDPOINTS = [commands.UdpAddress("127.0.0.1", 40000)]
EMPTY: dict[str, Any] = {
    "stand_in": True, "counters": {}, "effort": {}, "paths": [], "sessions": {}
}  # fmt: skip


class StandIn:
    def __init__(self, control: socket.socket, mode: str) -> None:
        self.control, self.mode = control, mode
        self.lanes: dict[int, socket.socket] = {}
        self.stop_at = float("inf")

    def run(self) -> None:
        while time.monotonic() < self.stop_at:
            sources = [self.control, *self.lanes.values()]
            wait = min(self.stop_at - time.monotonic(), 60.0)
            for source in select.select(sources, [], [], max(wait, 0.0))[0]:
                if source is self.control:
                    self.command()
                elif source.fileno() >= 0:
                    self.lane(source)

    def emit(self, event: control_events.Event) -> None:
        self.control.send(pack(event))

    def command(self) -> None:
        data, descriptors = receive(self.control)
        if not data:
            sys.exit(0)
        command = unpack(data)
        if isinstance(command, commands.OpenSession):
            arena, lane = descriptors
            os.close(arena)
            self.lanes[command.session] = socket.socket(fileno=lane)
            self.emit(control_events.SessionOpened(command.session))
        if isinstance(command, commands.ReportRequest) and self.mode.startswith("big"):
            for part in big_report(*map(int, self.mode.split(":")[1:])):
                self.emit(part)
        elif isinstance(command, commands.ReportRequest) and self.mode != "deaf":
            self.emit(control_events.Report({**EMPTY, "ledger": command.ledger}))
        if isinstance(command, commands.AliveRequest) and self.mode != "deaf":
            self.emit(control_events.Alive())
        if isinstance(command, commands.Stop) and self.mode != "stubborn":
            self.stop_at = time.monotonic() + command.drain
        self.tell(command)

    def tell(self, command: Any) -> None:
        number = getattr(command, "session", None)
        targets = list(self.lanes) if number is None else [number]
        for target in targets:
            if target in self.lanes:
                frame = msgpack.packb([type(command).__name__, asdict(command)])
                with contextlib.suppress(OSError):  # the client left, or does not read
                    self.lanes[target].send(frame, socket.MSG_DONTWAIT)
        if isinstance(command, commands.CloseSession) and command.session in self.lanes:
            self.lanes.pop(command.session).close()

    def lane(self, lane: socket.socket) -> None:
        number = next(n for n, sock in self.lanes.items() if sock is lane)
        data = receive_now(lane)
        if not data:
            self.lanes.pop(number).close()
            self.emit(control_events.SessionEnded(number, "session_closed", "the client ended"))
            return
        name, fields = msgpack.unpackb(data)
        if name == "Exit":
            os._exit(3)
        if name == "Finish":
            self.stop_at = 0.0
            return
        if name == "Echo":  # what came before it has been done
            lane.send(data)
            return
        if name == "OperationsFailed":
            fields = {
                "failures": [control_events.FailedOperation(*row) for row in fields["failures"]]
            }
        self.emit(getattr(control_events, name)(session=number, **fields))


def big_report(ranks: int = 256, paths: int = 16) -> Iterator[control_events.Report]:
    """8 ranks of a job, with a traffic class of every path to each peer; few peers an event."""
    yield control_events.Report(EMPTY, last=False)
    sizes = {row.key: 123456 for row in report_rows.CLASS}
    path = {row.key: 0.000123456 for row in report_rows.PATH} | {"classes": {"0": sizes}}
    step = max(1, EVENT // (len(msgpack.packb(path)) * paths))
    for number in range(8):
        head = {"alarms": {"paths_down": 0}, "peers": []}
        yield control_events.Report({"sessions": {str(number): head}}, last=False)
        for first in range(1, ranks, step):
            some = range(first, min(first + step, ranks))
            peers = [{"rank": rank, "paths": [path] * paths} for rank in some]
            rows = {"sessions": {str(number): {"peers": peers}}}
            yield control_events.Report(rows, last=False)
    yield control_events.Report({})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", default="obedient")
    parser.add_argument("--fd", type=int, required=True)
    options = parser.parse_args()
    control = socket.socket(fileno=options.fd)
    if options.mode == "die":
        sys.exit(4)
    if options.mode == "silent":
        control.recv(1)
        return
    stand_in = StandIn(control, options.mode)
    if options.mode == "fail":
        stand_in.emit(
            control_events.EngineFailed("address_unavailable", "path 0: 192.0.2.1 is not here")
        )
        return
    stand_in.emit(control_events.EngineReady(ENDPOINTS, {"gso": False, "gro": False}))
    stand_in.run()


if __name__ == "__main__":
    main()
