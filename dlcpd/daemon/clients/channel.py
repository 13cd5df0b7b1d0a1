"""A SEQPACKET socket on the event loop, with a bounded outbox."""

import asyncio
import errno
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from dlcpd.contract.messages import MAX_FRAME
from dlcpd.daemon import log
from dlcpd.ipc.kernel_errors import CallFailures
from dlcpd.ipc.seqpacket import close_all, receive_now, send_now

MAX_OUTBOX: Final = 64  # packets; a reader that leaves more unread is disconnected
MAX_WAITING: Final = 512  # packets: the default buffer of 208 KiB holds 278 of the smallest


def _log(reason: str) -> None:
    log.warning("socket_error", error=reason)


class PacketChannel:
    """Owns `sock`. Calls `on_packet` with each packet, and `on_end` once, when the channel ends.

    Reads one packet per wake-up: the loop is level-triggered, so a flooding peer cannot starve
    others. `count` gets the names of failed calls. A failed call is retried; a channel that is gone
    or keeps failing ends.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        *,
        on_packet: Callable[[bytes], None],
        on_end: Callable[[str], None],
        max_outbox: int | None = MAX_OUTBOX,
        count: Callable[[str], None] = _log,
    ) -> None:
        """Raises: OSError; then the caller still owns `sock`."""
        sock.setblocking(False)
        self._loop, self._sock = loop, sock
        self._on_packet, self._on_end = on_packet, on_end
        self._max_outbox = max_outbox
        self._outbox: deque[tuple[bytes, Sequence[int]]] = deque()
        self._open = True
        self._reads, self._writes = CallFailures(count, "channel"), CallFailures(count, "channel")
        self._taken: asyncio.Future[None] | None = None  # for `all_taken`
        loop.add_reader(sock.fileno(), self._readable)

    def send(self, data: bytes, descriptors: Sequence[int] = ()) -> None:
        """Send in order, now or when there is room. Takes over the descriptors.

        More than `max_outbox` unread packets end the channel: `on_end` is called soon after. With
        `max_outbox` None the sender must check `waiting` first.
        """
        self._outbox.append((data, descriptors))
        if not self._open:
            self._drop_outbox()
        elif len(self._outbox) == 1:
            self._flush()
        elif self._max_outbox is not None and len(self._outbox) > self._max_outbox:
            self._end_soon(f"does not read: {self._max_outbox} packets wait")

    @property
    def waiting(self) -> int:
        """Number of packets that the other end has no room for yet."""
        return len(self._outbox)

    async def all_taken(self) -> None:
        """Wait until no packet waits, or the channel has ended. One caller at a time."""
        while self._outbox and self._open:
            self._taken = self._loop.create_future()
            await self._taken

    def read_waiting(self) -> None:
        """Handle the packets that have already arrived, at most MAX_WAITING: a full socket
        buffer."""
        for _ in range(MAX_WAITING):
            try:
                data = receive_now(self._sock, MAX_FRAME) if self._open else None
            except OSError:  # the next read from the loop reports it
                return
            if not data:  # empty, or closed by the other end: the loop handles that
                return
            self._on_packet(data)

    def close(self) -> None:
        """Close the socket and drop what was not sent. `on_end` is not called."""
        if not self._open:
            return
        self._open = False
        self._loop.remove_reader(self._sock.fileno())
        self._loop.remove_writer(self._sock.fileno())
        self._drop_outbox()
        with suppress(OSError):
            self._sock.close()

    def _readable(self) -> None:
        try:
            data = receive_now(self._sock, MAX_FRAME)
        except OSError as exc:
            if self._reads.noted(exc):
                self._end(f"cannot be read: {exc.strerror}")
            return
        self._reads.over()
        if data:
            self._on_packet(data)
        elif data is not None:
            self._end("closed its end")

    def _flush(self) -> None:
        while self._outbox:
            data, descriptors = self._outbox[0]
            try:
                if not send_now(self._sock, data, descriptors):
                    self._go_on_later()
                    return
            except OSError as exc:
                if exc.errno == errno.EMSGSIZE:  # costs this packet, not the connection
                    log.error("packet_too_long", bytes=len(data))
                elif self._writes.noted(exc):
                    self._end_soon(f"cannot be written: {exc.strerror}")
                    return
                else:
                    self._go_on_later()
                    return
            else:
                self._writes.over()
            self._outbox.popleft()
            close_all(descriptors)
        self._tell_taken()
        self._loop.remove_writer(self._sock.fileno())

    def _go_on_later(self) -> None:
        """Continue when the socket is writable."""
        try:
            self._loop.add_writer(self._sock.fileno(), self._flush)
        except OSError as exc:
            self._end_soon(f"cannot be watched: {exc.strerror}")

    def _end_soon(self, why: str) -> None:
        """End after the caller has finished, so that `send` never calls back into it."""
        self._loop.call_soon(self._end, why)

    def _end(self, why: str) -> None:
        if self._open:
            self.close()
            self._on_end(why)

    def _drop_outbox(self) -> None:
        for _, descriptors in self._outbox:
            close_all(descriptors)
        self._outbox.clear()
        self._tell_taken()

    def _tell_taken(self) -> None:
        if self._taken and not self._taken.done():
            self._taken.set_result(None)
