"""The engine's end of a client's lane, and the arena behind it."""

import mmap
import socket
from collections import Counter, deque
from contextlib import suppress
from typing import Final

import numpy as np

from dlcpd.collectives.loss.accounts import Accounts
from dlcpd.contract.frames import decode_untrusted, encode
from dlcpd.contract.messages import Message
from dlcpd.core.wire.datagram import Bytes
from dlcpd.io.clients.committed import Committed
from dlcpd.io.clients.unmapping import give_back
from dlcpd.io.udp.mmsg import address
from dlcpd.ipc.kernel_errors import CallFailures
from dlcpd.ipc.seqpacket import close_all, receive_now, send_now

MAX_BACKLOG: Final = 8192  # frames a client may leave unread: two per operation it may have open
MAX_WAITING: Final = 32 << 20  # bytes of those: texts of failures may be long


class Lane:
    """Non-blocking SOCK_SEQPACKET; a frame is one packet."""

    def __init__(
        self,
        session: int,
        arena: int,
        arena_bytes: int,
        lane: int,
        accounts: Accounts | None = None,
        *,
        counters: Counter[str] | None = None,
    ) -> None:
        """Takes both descriptors over; `counters` counts failed calls by their names.

        Raises: OSError, ValueError when there is no room for the arena in this process.
        """
        self.session = session
        counted = Counter[str]() if counters is None else counters

        def count(reason: str) -> None:
            counted[reason] += 1

        self._reads, self._writes = CallFailures(count, "lane"), CallFailures(count, "lane")
        self.broken = ""  # why the lane cannot be written any more; empty: it can
        self.socket = _socket_of(lane, arena)
        self.backlog: deque[bytes] = deque()
        self._waiting = 0  # bytes of `backlog`
        self.released: list[int] = []  # operations that the client has yet to be told of
        self.accounts = accounts or Accounts()
        try:
            self._mapped = mapped = mmap.mmap(arena, arena_bytes)
        except (OSError, ValueError):
            with suppress(OSError):
                self.socket.close()
            close_all([arena])
            raise
        self._arena = arena
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # a kernel without huge pages for shared memory: just slower
                mapped.madvise(mmap.MADV_HUGEPAGE)
        self.memory: Bytes = np.frombuffer(mapped, np.uint8)
        self.committed = Committed(arena, address(self.memory))

    def fileno(self) -> int:
        return self.socket.fileno()

    def receive(self) -> Message | None:
        """The next frame; None when none waits.

        Raises: EOFError when the client is gone; BadMessage.
        """
        try:
            frame = receive_now(self.socket)
        except OSError as exc:
            if self._reads.noted(exc):
                raise EOFError from exc
            return None  # a waiting frame causes the next wake-up
        if frame is None:
            return None
        self._reads.over()
        if not frame:
            raise EOFError
        return decode_untrusted(frame)

    def take_released(self) -> list[int]:
        """Return and clear `released`."""
        released, self.released = self.released, []
        return released

    def send(self, message: Message) -> bool:
        """Queue a message and try to send it; False when the client has left too much unread, or
        the lane is `broken`."""
        frame = encode(message)
        self.backlog.append(frame)
        self._waiting += len(frame)
        self.flush()
        full = len(self.backlog) > MAX_BACKLOG or self._waiting > MAX_WAITING
        return not (full or self.broken)

    def flush(self) -> None:
        """Send waiting frames, as far as the client reads. A failed call is repeated when the lane
        can be written."""
        while self.backlog:
            try:
                if not send_now(self.socket, self.backlog[0]):
                    return
            except OSError as exc:
                if self._writes.noted(exc):
                    self._close(exc)
                return
            self._writes.over()
            self._waiting -= len(self.backlog.popleft())

    def _close(self, why: OSError) -> None:
        self._waiting = 0
        self.backlog.clear()
        if not isinstance(why, ConnectionError):  # else the client is gone: `receive` will say so
            self.broken = f"the engine cannot write to the lane: {why.strerror}"

    def hang_up(self) -> None:
        """Close the socket; the arena stays mapped. Unread frames of the client are read first:
        unread, they would reset the connection, and the client would not learn why it ends. The
        client can send no more."""
        with suppress(OSError):  # it is gone already
            self.socket.shutdown(socket.SHUT_RD)
        with suppress(OSError):
            while receive_now(self.socket):
                pass
        with suppress(OSError):
            self.socket.close()
        self.backlog.clear()

    def close(self) -> None:
        """Close the socket, and unmap the arena."""
        if self.socket.fileno() >= 0:
            self.hang_up()
        self.accounts.holdings.close()
        at, self.memory = address(self.memory), np.empty(0, np.uint8)
        give_back(self._mapped, at, self._arena)


def _socket_of(lane: int, arena: int) -> socket.socket:
    """Raises: OSError; both descriptors are closed."""
    try:
        sock = socket.socket(fileno=lane)
    except OSError:
        close_all([lane, arena])
        raise
    try:
        sock.setblocking(False)
    except OSError:
        with suppress(OSError):
            sock.close()
        close_all([arena])
        raise
    return sock
