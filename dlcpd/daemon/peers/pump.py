"""A ZeroMQ socket's messages, delivered on the event loop.

zmq.asyncio works with uvloop too, but wraps every message in a future and a task;
one callback on the socket's descriptor is all that receiving needs.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import zmq

BATCH: Final = 64  # messages per turn of the loop; then others get theirs


class SocketPump:
    """Owns `sock`. Calls `on_frames` with the frames of each message.

    The descriptor is edge-triggered: it tells once, and any call on the socket may
    take the news. So every turn reads until there is nothing left, and whoever sends
    on the same socket calls `again`.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: "zmq.Socket[bytes]",
        on_frames: Callable[[list[Any]], None],
    ) -> None:
        self._loop, self._sock, self._on_frames = loop, sock, on_frames
        self._descriptor: int = sock.getsockopt(zmq.FD)  # type: ignore[assignment]  # an int option
        loop.add_reader(self._descriptor, self._turn)
        self.again()

    def again(self) -> None:
        """Look for messages soon, without a wake-up."""
        self._loop.call_soon(self._turn)

    def close(self) -> None:
        """Close the socket; what it still has to send may linger as its options say."""
        if not self._sock.closed:
            self._loop.remove_reader(self._descriptor)
            self._sock.close()

    def _turn(self) -> None:
        for _ in range(BATCH):
            if self._sock.closed:
                return
            try:
                frames = self._sock.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            self._on_frames(frames)
        self.again()
