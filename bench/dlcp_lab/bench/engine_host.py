"""One engine of dlcpd in this process, control's end of its command socket, and a bare client.

UDP socket, command socket, lane and arena are those of the product; the client sends requests and
reads answers. The CPU time of a step is the engine's alone.
"""

import mmap
import os
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dlcp_lab.report.statistic import NotMeasured
from dlcpd.contract.frames import decode_untrusted, encode
from dlcpd.contract.messages import Completed, Failed, Submit
from dlcpd.core.paths.path_mtu import SearchState
from dlcpd.io import commands, control_events
from dlcpd.io.clients.memory import create_arena
from dlcpd.io.config import EngineConfig
from dlcpd.io.control_frames import MAX_COMMAND, pack, unpack
from dlcpd.io.control_link import ControlGone
from dlcpd.io.engine import Engine
from dlcpd.io.poll import EngineBroken
from dlcpd.ipc.seqpacket import close_all, receive_now

SESSION: Final = 1
POPULATE_WRITE: Final = 23  # MADV_POPULATE_WRITE of Linux 5.14; Python has no name for it
_METER: Final = frozenset({id(time.thread_time_ns), id(sys.setprofile)})  # of `step` itself


class EngineHost:
    """An engine with one session at most. It runs only in `step`."""

    def __init__(self, config: EngineConfig) -> None:
        """Raises: AddressUnavailable, BadConfig, OSError."""
        self.name = config.host
        self.cpu = 0  # nanoseconds of all steps
        self.calls: Counter[str] | None = None  # by event of sys.setprofile; None: not counted
        self.done = 0  # number of the last operation that is complete
        self.memory: NDArray[np.uint8] = np.empty(0, np.uint8)  # the arena
        self._lane: socket.socket | None = None
        self._control, self._engine_end = _pair()
        try:
            self.engine = Engine(config, self._engine_end)
        except BaseException:
            self._close_sockets()
            raise

    def open(self, rank: int, peers: list[commands.EnginePeer], arena_bytes: int) -> None:
        """Have the engine open the session, as control does. Raises: ArenaFull, OSError."""
        self._lane, engine_end = _pair()
        with engine_end:
            arena = create_arena(arena_bytes)
            try:
                self.memory = _committed(arena, arena_bytes)
                ask = commands.OpenSession(
                    SESSION, "bench", rank, len(peers) + 1, arena_bytes, peers
                )
                self.tell(ask, [arena, engine_end.fileno()])
            finally:
                close_all([arena])

    def tell(self, command: commands.Command, descriptors: list[int] | None = None) -> None:
        """Send a command as control does. Raises: OSError."""
        socket.send_fds(self._control, [pack(command)], descriptors or [])

    def events(self) -> Iterator[Any]:
        """The engine's news for control."""
        while frame := receive_now(self._control, MAX_COMMAND):
            yield unpack(frame)

    def submit(self, request: Submit) -> None:
        """Send a request on the lane. Raises: OSError."""
        if self._lane is not None:
            self._lane.send(encode(request))

    def on_ready(self, _mask: int, _now: float) -> None:
        """A handler for `dlcpd.io.poll.Poll`."""
        self.step()

    def step(self) -> None:
        """Let the engine do what is due, and read its answers to the client.

        Raises: NotMeasured if engine, session or operation ends with an error.
        """
        try:
            self._wake_up()
        except (ControlGone, EngineBroken) as exc:
            raise NotMeasured(f"the engine of {self.name} ended: {type(exc).__name__}") from exc
        if self._lane is not None:
            self._listen(self._lane)

    def _wake_up(self) -> None:
        counts, former = self.calls is not None, sys.getprofile()
        if counts:
            sys.setprofile(self._count)
        began = time.thread_time_ns()
        try:
            self.engine.step()
        finally:
            self.cpu += time.thread_time_ns() - began
            if counts:
                sys.setprofile(former)

    def _count(self, _frame: Any, event: str, argument: Any) -> None:
        if self.calls is not None and id(argument) not in _METER:
            self.calls[event] += 1

    def _listen(self, lane: socket.socket) -> None:
        """Raises: NotMeasured."""
        while (frame := receive_now(lane)) is not None:
            if not frame:
                raise NotMeasured(f"the engine of {self.name} ended the session{self._why()}")
            message = decode_untrusted(frame)
            if isinstance(message, Completed):
                self.done = message.operation
            elif isinstance(message, Failed):
                raise NotMeasured(f"{self.name}: {message.code}: {message.text}")

    def _why(self) -> str:
        """The reason that control was told."""
        ended = (e for e in self.events() if isinstance(e, control_events.SessionEnded))
        return next((f": {event.code}: {event.text}" for event in ended), "")

    @property
    def serves(self) -> bool:
        """Whether the engine has the session."""
        return SESSION in self.engine.endpoint.sessions

    @property
    def settled(self) -> bool:
        """Whether the engine knows the largest datagram to each peer."""
        flows = self.engine.endpoint.flows.values()
        rows = [row for flow in flows for row in self.engine.network.mtu.report(flow)]
        return all(row["mtu_search"] == SearchState.COMPLETE.value for row in rows)

    def leave(self) -> None:
        """Have the engine close the session, and listen to it no more. Raises: OSError."""
        if self._lane is not None:
            self._lane.close()
        self._lane = None
        self.memory = np.empty(0, np.uint8)
        self.tell(commands.CloseSession(SESSION, "session_closed", "the benchmark has ended"))

    def close(self) -> None:
        """Close all sockets, also those of a session that the engine still has."""
        self.engine.close()
        self._close_sockets()

    def _close_sockets(self) -> None:
        for sock in (self._lane, self._control, self._engine_end):
            if sock is not None:
                sock.close()


def _pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def _committed(arena: int, size: int) -> NDArray[np.uint8]:
    """The memory of an arena, written to as the client's library does. Raises: OSError."""
    mapped = mmap.mmap(arena, size)
    with suppress(OSError):  # a kernel without huge pages for shared memory
        mapped.madvise(mmap.MADV_HUGEPAGE)
    with suppress(OSError):  # an older kernel; or no memory, as the next call reports
        mapped.madvise(POPULATE_WRITE)
    os.posix_fallocate(arena, 0, size)
    memory = np.frombuffer(mapped, np.uint8)
    memory[:] = 0
    return memory
