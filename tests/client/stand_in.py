"""The far end of a world of sessions: real SEQPACKET sockets and memfds, no network between.

One thread reads all lanes and reduces an operation once every rank has submitted it.
"""

import contextlib
import math
import mmap
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

import torch

from dlcp_client.arena.tensors import TENSORS
from dlcp_client.connection import JoinedJob
from dlcp_client.ipc.handshake import ControlConnection
from dlcp_client.operations.lanes import Lanes
from dlcp_client.operations.work import Work
from dlcp_client.session import Session
from dlcpd.contract.frames import decode_untrusted, encode
from dlcpd.contract.messages import (
    Completed,
    Computed,
    Failed,
    Leave,
    Left,
    Message,
    Released,
    Submit,
)

ARENA: Final = 1 << 20  # bytes

_REDUCE: Final[dict[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "sum": lambda stacked: stacked.sum(0, dtype=stacked.dtype),
    "avg": lambda stacked: stacked.mean(0),
    "min": lambda stacked: stacked.amin(0),
    "max": lambda stacked: stacked.amax(0),
}


class Far:
    """One rank's far end."""

    def __init__(self, arena_bytes: int) -> None:
        self.control, self.near_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.lane, self.near_lane = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.arena = os.memfd_create("arena")
        os.ftruncate(self.arena, arena_bytes)
        self.map = mmap.mmap(self.arena, arena_bytes)
        self.submits: dict[int, Submit] = {}
        self.computed: list[int] = []  # steps that the client has answered
        self.errors: list[str] = []  # of those

    def tensor(self, number: int) -> torch.Tensor:
        """The memory of an operation, as the engine sees it: it works in place."""
        ask = self.submits[number]
        assert ask.collective == "all_reduce"
        assert (ask.output, ask.output_count) == (ask.input, ask.input_count)
        dtype = getattr(torch, ask.dtype)
        return torch.frombuffer(self.map, dtype=dtype, count=ask.input_count, offset=ask.input)

    def send(self, message: Message) -> None:
        """To the client, if it is still there: the engine, too, ignores that it left."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.lane.send(encode(message))

    def close(self) -> None:
        """As when the daemon is killed."""
        for sock in (self.lane, self.control):
            with contextlib.suppress(OSError):  # closed before
                sock.shutdown(socket.SHUT_RDWR)


class StandIn:
    """`sessions[rank]` and `far[rank]`. Answers by itself while `answering`."""

    def __init__(self, world: int = 2, arena_bytes: int = ARENA) -> None:
        self.answering = True
        self.verdict: Failed | Left = Left(0)  # on results that nobody has compared, at the end
        self.releasing = True  # False: Completed without Released
        self.hanging_up = True  # False: a client that leaves finds the lane open
        self.reading = threading.Event()  # cleared: as when the engine is stopped
        self.reading.set()
        self.arrived = threading.Condition()
        self.far = [Far(arena_bytes) for _ in range(world)]
        self.sessions = [
            Session(self._seat(rank, far, arena_bytes)) for rank, far in enumerate(self.far)
        ]
        self._threads = [
            threading.Thread(target=self._serve, args=(far,), daemon=True) for far in self.far
        ]
        for thread in self._threads:
            thread.start()

    def wait_for(self, number: int) -> None:
        """Until every rank has submitted operation `number`."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: self._complete(number), timeout=30)

    def answer(self, number: int) -> None:
        """Reduce one operation and tell everybody."""
        self.wait_for(number)
        tensors = [far.tensor(number) for far in self.far]
        result = _REDUCE[self.far[0].submits[number].reduce](torch.stack(tensors))
        for far, tensor in zip(self.far, tensors, strict=True):
            tensor.copy_(result)
            far.send(completed(number, released=far.submits[number].in_place))
            if not far.submits[number].in_place and self.releasing:
                far.send(Released(number))

    def fail(self, number: int, code: str, text: str) -> None:
        """Tell every rank that an operation, or with 0 the session, failed."""
        for far in self.far:
            far.send(Failed(number, code, text))

    def release(self, number: int) -> None:
        """Give every rank its memory back."""
        for far in self.far:
            far.send(Released(number))

    def close(self) -> None:
        self.reading.set()
        for far in self.far:
            far.close()
        for session in self.sessions:
            session.close()
        for thread in self._threads:
            thread.join(30)
        for far in self.far:
            for thing in (far.lane, far.control):
                thing.close()
            os.close(far.arena)

    def _seat(self, rank: int, far: Far, arena_bytes: int) -> JoinedJob:
        control = ControlConnection(far.near_control, lambda: "the stand-in was told to end")
        lane, arena = far.near_lane.detach(), os.dup(far.arena)
        return JoinedJob(
            "test", rank, len(self.far), control, [lane], arena, arena_bytes, None, library=TENSORS
        )

    def _serve(self, far: Far) -> None:
        ready = select.poll()
        ready.register(far.lane, select.POLLIN)
        ready.register(far.control, select.POLLRDHUP)  # a question on it is left unanswered
        while far.lane.fileno() in dict(ready.poll()):
            self.reading.wait()
            try:
                data = far.lane.recv(1 << 18)
            except ConnectionError:
                break
            if not data:
                break
            self._take(far, data)
        if self.hanging_up:
            far.close()

    def _take(self, far: Far, data: bytes) -> None:
        submit = decode_untrusted(data)
        if isinstance(submit, Leave):
            far.send(self.verdict)
            return
        if isinstance(submit, Computed):
            with self.arrived:
                far.computed.append(submit.step)
                far.errors.append(submit.error)
                self.arrived.notify_all()
            return
        assert isinstance(submit, Submit)
        with self.arrived:
            far.submits[submit.operation] = submit
            self.arrived.notify_all()
            mine = self.answering and self._complete(submit.operation)
        if mine:
            self.answer(submit.operation)

    def _complete(self, number: int) -> bool:
        return all(number in far.submits for far in self.far)


def completed(number: int, **changes: Any) -> Completed:
    """A Completed frame."""
    values: dict[str, Any] = {
        "released": True,
        "sent": 0,
        "retransmitted": 0,
        "waived": 0,
        "reapplied": 0,
        "lost": 0,
        "energy": 0.0,
        "source": -1,
        "also_released": [],
    }
    return Completed(operation=number, **(values | changes))


def nothing(table: Any) -> Work[Any]:
    """A work without data. `table` submits nothing: `begin` it."""
    block: Any = SimpleNamespace(array=None, device=None)
    return Work(table, block=block, expires=time.monotonic() + 60.0, label="nothing")


def until_polling(thread_id: int) -> None:
    """Until a thread reads the lane: it sleeps in poll() then."""
    while True:
        frame = sys._current_frames().get(thread_id)  # noqa: SLF001
        while frame is not None:
            if frame.f_code is Lanes._read.__code__:  # noqa: SLF001
                return
            frame = frame.f_back
        time.sleep(0)


def wait_until(session: Session[Any], done: Callable[[], bool], limit: float = math.inf) -> bool:
    """Process frames until `done()`; False if the monotonic time `limit` passed first."""
    return session._connection.outcomes.wait_until(done, limit)  # noqa: SLF001


def until_released(session: Session[Any]) -> None:
    """Until no engine may access memory of the session."""
    wait_until(session, lambda: len(session._connection.table.memory) == 0)  # noqa: SLF001
