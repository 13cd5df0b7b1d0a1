"""Real daemons as child processes, and a client of a session socket."""

import array
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypeVar

import msgpack

from dlcpd.contract.frames import decode_untrusted, encode
from dlcpd.contract.inquiries import Health, HealthRequest, Status, StatusRequest
from dlcpd.contract.messages import VERSION, Hello, Join, Joined, Message, PeerRow, Refused, Welcome
from dlcpd.ipc.seqpacket import MAX_DESCRIPTORS

T = TypeVar("T")
PATIENCE = 90.0  # seconds until a test fails; never a measure of anything
ARENA = 1 << 16
ROOT = Path(__file__).parents[2]
RUNNER = Path(__file__).with_name("run_with_stand_in.py")


def configuration(
    folder: Path, host: str = "host-a", address: str = "127.0.0.1", more: str = "", daemon: str = ""
) -> Path:
    """A configuration file; `daemon` adds lines to [daemon], `more` adds tables."""
    file = folder / f"{host}.toml"
    network = "" if "[network]" in more else f'[network]\npaths = [{{ address = "{address}" }}]\n'
    file.write_text(
        f'[daemon]\nhost = "{host}"\nsocket = "{folder / host}.sock"\n'
        f'control_address = "{address}"\nlog_format = "json"\nlog_level = "debug"\n{daemon}\n'
        f"{network}{more}\n"
    )
    return file


def environment() -> dict[str, str]:
    """This process's, with the project importable."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


class Daemon:
    """A running `dlcpd`; its log as values. Use as a context manager."""

    def __init__(
        self,
        config: Path,
        *,
        mode: str = "obedient",  # of the stand-in engine; "" runs the real one
        runner: Path = RUNNER,  # that brings the stand-in
        options: tuple[str, ...] = (),
        pass_fds: tuple[int, ...] = (),
        environ: dict[str, str] | None = None,
    ) -> None:
        start = [str(runner), mode] if mode else ["-m", "dlcpd"]
        self.socket = config.with_suffix(".sock")
        self.process = subprocess.Popen(
            [sys.executable, *start, "--config", str(config), *options],
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=pass_fds,
            env={**environment(), **(environ or {})},
            cwd=ROOT,
            process_group=0,
        )
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            with self._news:
                self.lines.append(line)
                self._news.notify_all()
        with self._news:
            self._news.notify_all()

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in list(self.lines) if line.startswith("{")]

    def wait_for(self, event: str, **fields: Any) -> dict[str, Any]:
        """The first log event of this name with these fields."""

        def found() -> dict[str, Any] | None:
            wanted = {"event": event, **fields}
            return next((e for e in self.events if wanted.items() <= e.items()), None)

        with self._news:
            self._news.wait_for(lambda: found() or self.process.poll() is not None, PATIENCE)
        self._give_reader_time(found)
        result = found()
        assert result, f"no {event} {fields} in:\n{''.join(self.lines)}"
        return result

    def _give_reader_time(self, found: Callable[[], Any]) -> None:
        if not found() and self.process.poll() is not None:
            self._reader.join(PATIENCE)

    def ready(self) -> Self:
        self.wait_for("ready")
        return self

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code

    @property
    def text(self) -> str:
        return "".join(self.lines)

    @property
    def descriptors(self) -> int:
        """How many control has open."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    @property
    def engine_pid(self) -> int:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        [child] = children.split()
        return int(child)

    def client(self) -> "Client":
        return Client.connect(self.socket)

    def __enter__(self) -> Self:
        return self.ready()

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.wait()
        assert self.process.stderr
        self.process.stderr.close()
        assert not [e for e in self.events if e["event"] == "internal"], self.text


class Client:
    """One connection to a session socket, blocking."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sock.settimeout(PATIENCE)
        self.arena = -1
        self._greeted = False
        self.lane: socket.socket | None = None

    @classmethod
    def connect(cls, path: Path) -> Self:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.connect(str(path))
        return cls(sock)

    def greet(self) -> Welcome:
        self._greeted = True
        self.send(Hello(VERSION, f"test {os.getpid()}"))
        return self.expect(Welcome)

    def send(self, message: Message) -> None:
        self.sock.send(encode(message))

    def receive(self) -> Message | None:
        """The next message; None at the end. Takes a Joined's descriptors over."""
        data, ancillary, _, _ = self.sock.recvmsg(1 << 20, socket.CMSG_SPACE(4 * MAX_DESCRIPTORS))
        descriptors = array.array("i")
        for _, _, content in ancillary:
            descriptors.frombytes(content)
        if descriptors:
            self.arena = descriptors[0]
            self.lane = socket.socket(fileno=descriptors[1])
            self.lane.settimeout(PATIENCE)
        return decode_untrusted(data) if data else None

    def expect(self, kind: type[T]) -> T:
        message = self.receive()
        assert isinstance(message, kind), message
        return message

    def refused(self, code: str) -> str:
        """The text of the Refused that comes next."""
        refused = self.expect(Refused)
        assert refused.code == code, refused
        return refused.text

    def status(self, ledger: int = 0) -> dict[str, Any]:
        return self.rest_of_status(self.status_part(ledger))

    def health(self) -> Health:
        """As `dlcpctl health`; greets first if nobody has."""
        if not self._greeted:
            self.greet()
        self.send(HealthRequest())
        return self.expect(Health)

    def status_part(self, ledger: int = 0) -> Status:
        """The first message of a status."""
        self.send(StatusRequest(ledger))
        return self.expect(Status)

    def rest_of_status(self, part: Status) -> dict[str, Any]:
        """The status, given its first message."""
        before = b""
        while part.left:
            before += part.report
            part = self.expect(Status)
        return part.read(before)

    def counters(self) -> dict[str, int]:
        counters: dict[str, int] = self.status()["counters"]
        return counters

    def command(self, name: str) -> dict[str, Any]:
        """The fields of the next command of this name that control gave the stand-in."""
        assert self.lane
        while True:
            got, fields = msgpack.unpackb(self.lane.recv(1 << 20))
            if got == name:
                return dict(fields)

    def emit(self, event: str, **fields: Any) -> None:
        """Have the stand-in emit an event about this session."""
        assert self.lane
        self.lane.send(msgpack.packb([event, fields]))

    def close(self) -> None:
        self.sock.close()
        if self.lane:
            self.lane.close()
            os.close(self.arena)
            self.lane = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def joins(job: str, welcomes: list[Welcome], *, timeout: float = PATIENCE) -> list[Join]:
    """The Join of each rank, given every rank's Welcome."""
    peers = [PeerRow(rank, w.host, w.endpoint, w.public_key) for rank, w in enumerate(welcomes)]
    size = len(welcomes)
    return [Join(job, rank, size, ARENA, timeout, peers) for rank in range(size)]


def join_all(clients: list[Client], job: str) -> list[Joined]:
    """Greet and join everybody, rank by rank in the order given."""
    welcomes = [client.greet() for client in clients]
    for client, join in zip(clients, joins(job, welcomes), strict=True):
        client.send(join)
    return [client.expect(Joined) for client in clients]


def until(true: Callable[[], Any], what: str) -> None:
    """Poll for something that has no event; ends after PATIENCE."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)
