"""Real engines as child processes on loopback, driven as control and clients drive them."""

import mmap
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlcpd import starter
from dlcpd.contract.frames import decode_untrusted, encode
from dlcpd.contract.messages import Failed, Message, Submit
from dlcpd.daemon.engine_reports import add_part
from dlcpd.io import commands, control_events
from dlcpd.io.clients.memory import create_arena
from dlcpd.io.config import EngineConfig
from dlcpd.io.control_frames import MAX_COMMAND, pack, unpack
from dlcpd.io.engine import main as run_engine
from dlcpd.numerics.elements import STORAGE
from dlcpd.requests.memory import ranges_of
from tests.forking import CONTEXT

ENGINE = tuple(starter.command("dlcpd.io.engine"))
FORKED = ("forked",)
ROOT = Path(__file__).parents[2]
PATIENCE = 20.0  # seconds after which a test fails; never waited for when all is well
ARENA = 4 << 20  # bytes


def _started(
    config: EngineConfig, control: socket.socket, start: Sequence[str]
) -> "subprocess.Popen[bytes]":
    environment = dict(os.environ, DLCPD_ENGINE_CONFIG=config.to_json(), PYTHONPATH=str(ROOT))
    number = control.fileno()
    return subprocess.Popen([*start, "--fd", str(number)], env=environment, pass_fds=[number])


class Forked:
    """A process of an engine without its start: a fork of one that has imported the engine.

    Implements the part of `subprocess.Popen` that tests of engines use.
    """

    def __init__(self, config: EngineConfig, control: socket.socket) -> None:
        self._process = CONTEXT.Process(target=_run_engine, args=(config.to_json(), control))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("engine", timeout)
        return self._process.exitcode


def _run_engine(config: str, control: socket.socket) -> None:
    os.environ["DLCPD_ENGINE_CONFIG"] = config
    sys.argv[1:] = ["--fd", str(control.detach())]
    sys.exit(run_engine())


class Engine:
    """One child process and control's end of its command socket."""

    def __init__(self, config: EngineConfig, start: Sequence[str] = ENGINE) -> None:
        """`start`: the command, or FORKED, which saves the second that importing takes."""
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.settimeout(PATIENCE)
        self.process = (
            Forked(config, theirs) if start == FORKED else _started(config, theirs, start)
        )
        theirs.close()

    def receive(self) -> control_events.Event:
        """The next event; that a session is open, and what paths carry, is passed over: it comes
        at any time."""
        while True:
            event = unpack(self.control.recv(MAX_COMMAND))
            assert not isinstance(event, commands.Command)
            if not isinstance(event, control_events.PathMtuChanged | control_events.SessionOpened):
                return event

    def send(self, command: commands.Command, fds: list[int] | None = None) -> None:
        socket.send_fds(self.control, [pack(command)], fds or [])

    def close_session(self, session: int = 1) -> None:
        """As control does when a client has left."""
        self.send(commands.CloseSession(session, "session_closed", "the client ended"))

    def counters(self) -> dict[str, int]:
        """What the engine has counted; events that come in between are passed over."""
        return dict(self.report()["counters"])

    def report(self, ledger: int = 100) -> dict[str, Any]:
        self.send(commands.ReportRequest(ledger))
        whole: dict[str, Any] = {}
        while True:
            event = self.receive()
            if isinstance(event, control_events.Report):
                add_part(whole, event.report)
                if event.last:
                    return whole

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE)

    def close(self) -> None:
        self.control.close()
        try:
            self.process.wait(5.0)
        except subprocess.TimeoutExpired:
            self.kill()


@dataclass
class Rank:
    """One rank's session on its engine: the client's side."""

    engine: Engine
    lane: socket.socket
    memory: NDArray[np.uint8]
    mapped: mmap.mmap = field(repr=False)
    inode: int  # of the engine's end of the lane

    def unmap(self) -> None:
        """Give the arena up; `memory` must be nobody's any more."""
        self.mapped.close()

    def submit(self, number: int, **options: Any) -> None:
        """Commit the memory first, as the client's library does."""
        message = ask(number, **options)
        self.commit(message)
        self.send(message)

    def commit(self, message: Submit) -> None:
        """Touch every page that an operation uses, as far as it is in the arena."""
        for place in ranges_of(message):
            self.memory[place.start : place.stop : mmap.PAGESIZE] |= 0
            self.memory[max(place.stop - 1, 0) : place.stop] |= 0

    def send(self, message: Message) -> None:
        self.lane.send(encode(message))

    def receive(self) -> Message:
        return decode_untrusted(self.lane.recv(1 << 18))

    def outcome(self, number: int) -> Message:
        """The next frame about operation `number`, or about the session."""
        while True:
            message = self.receive()
            if getattr(message, "operation", number) in (number, 0):
                return message

    def tensor(self, offset: int, count: int, dtype: str = "float32") -> NDArray[Any]:
        kind = STORAGE[dtype]
        return self.memory[offset : offset + count * kind.itemsize].view(kind)


def ask(number: int, **options: Any) -> Submit:
    """A Submit with sensible fields, `options` changed; `count` stands for both counts."""
    count = options.pop("count", 1000)
    fields: dict[str, Any] = {
        "group": 0,
        "collective": "all_reduce",
        "schedule": "",
        "peer": -1,
        "tag": 0,
        "input": 0,
        "input_count": count,
        "output": 0,
        "output_count": count,
        "sizes": [],
        "dtype": "float32",
        "reduce": "sum",
        "max_loss": 0.0,
        "fill": "residual",
        "traffic_class": 4,
        "deadline": 15.0,
        "in_place": True,
        "name": "",
        "exempt": [],
        "layers": [],
    }
    return Submit(operation=number, **(fields | options))


def token(receiver: int, sender: int, session: int = 1) -> int:
    return 0x5EC0_0000_0000_0000 | (session - 1) << 32 | receiver << 16 | sender


class Job:
    """Engines of one job and a session of every rank. Close it."""

    def __init__(
        self,
        world_size: int,
        configure: Callable[[int], EngineConfig],
        start: Sequence[str] = ENGINE,
        *,
        keyed: bool = False,
    ) -> None:
        """`start` is that of rank 0's engine; FORKED, that of all. With `keyed` datagrams have
        checksums."""
        self.keyed = keyed
        starts = [start] + [FORKED if start == FORKED else ENGINE] * (world_size - 1)
        self.engines = [Engine(configure(rank), each) for rank, each in enumerate(starts)]
        self.ranks: list[Rank] = []
        self._lanes: list[socket.socket] = []
        try:
            self._join()
        except BaseException:
            self.close()
            raise

    def _join(self) -> None:
        self.endpoints = []
        for engine in self.engines:
            ready = engine.receive()
            assert isinstance(ready, control_events.EngineReady), ready
            self.endpoints.append(ready.endpoints)
        for rank in range(len(self.engines)):
            self.ranks.append(self.open(rank))
        for engine in self.engines:  # a join is a barrier: all serve their session by now
            engine.report()

    def towards(self, rank: int, peer: int) -> list[commands.UdpAddress]:
        """Where `rank` is told that its peer is."""
        return self.endpoints[peer]

    def secret(self, receiver: int, sender: int) -> bytes:
        """What keys the checksums of one direction."""
        return b"secret of %d for %d" % (receiver, sender) if self.keyed else b""

    def open(self, rank: int, session: int = 1, arena_bytes: int = 0) -> Rank:
        """A session of this rank; further ones are those of other jobs on the same engines."""
        arena_bytes = arena_bytes or ARENA
        arena = create_arena(arena_bytes)
        mapped = mmap.mmap(arena, arena_bytes)
        lane, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        lane.settimeout(PATIENCE)
        self._lanes.append(lane)
        peers = [
            commands.EnginePeer(
                p,
                f"host{p}",
                token(rank, p, session),
                token(p, rank, session),
                self.towards(rank, p),
                self.secret(rank, p),
                self.secret(p, rank),
            )
            for p in range(len(self.engines))
            if p != rank
        ]
        command = commands.OpenSession(session, "job", rank, len(self.engines), arena_bytes, peers)
        self.engines[rank].send(command, [arena, theirs.fileno()])
        inode = os.fstat(theirs.fileno()).st_ino
        os.close(arena)
        theirs.close()
        return Rank(self.engines[rank], lane, np.frombuffer(mapped, np.uint8), mapped, inode)

    def all_reduce(self, number: int, parts: list[NDArray[Any]], **options: Any) -> list[Message]:
        """Put the parts at offset 0 of the arenas, submit, wait; the outcomes."""
        for rank, part in zip(self.ranks, parts, strict=True):
            rank.memory[: part.nbytes] = part.view(np.uint8)
        for rank in self.ranks:
            rank.submit(number, count=parts[0].size, **options)
        return [rank.outcome(number) for rank in self.ranks]

    def die(self, rank: Rank) -> None:
        """The client of a rank is gone, and so is all that it had."""
        rank.memory = np.empty(0, np.uint8)
        rank.unmap()
        self._lanes.remove(rank.lane)
        rank.lane.close()

    def close_left(self, engine: int, session: int = 1) -> None:
        """Close a session as control does, as soon as its peers have all."""
        events = iter(self.engines[engine].receive, control_events.SessionDelivered(session))
        known = control_events.LeftOpen, control_events.SessionLeft
        assert all(isinstance(event, known) for event in events)
        self.engines[engine].close_session(session)

    def close(self) -> None:
        for lane in self._lanes:
            lane.close()
        for engine in self.engines:
            engine.close()


def failure(message: Message) -> tuple[int, str, str]:
    """(operation, code, text) of a Failed."""
    assert isinstance(message, Failed), message
    return message.operation, message.code, message.text
