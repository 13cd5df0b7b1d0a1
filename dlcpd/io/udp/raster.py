"""Memory that recvmmsg fills so that datagrams of one length become rows of an array."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.io.udp import mmsg
from dlcpd.io.udp.mmsg import MAX_RUN, MAX_UDP

CONTROL_SIZE: Final = 128  # bytes of control messages per received message


class Raster:
    """`messages` messages of `run` rows of `width` bytes. With `gro` a message takes all that the
    kernel joins, else one datagram of up to `longest` bytes.

    Bytes beyond the rows of a message go to a separate place, so that no message is cut off for
    having another length than the rest.
    """

    def __init__(self, width: int, size: int, *, gro: bool, longest: int) -> None:
        self.width = width
        self.run = max(min(MAX_UDP // width, MAX_RUN), 1) if gro else 1
        self.messages = max(size // (self.run * width), 1)
        self._area = self.run * width
        spill = max((MAX_UDP if gro else longest) - self._area, 0)
        self.rows = np.zeros((self.messages * self.run, width), np.uint8)
        self.flat = self.rows.data.cast("B")
        self._bytes = self.rows.reshape(-1)
        self._spill = np.zeros((self.messages, spill), np.uint8)
        self.control = np.zeros((self.messages, CONTROL_SIZE // 4), np.int32)
        self.numbers = np.arange(len(self.rows), dtype=np.intp)
        self.full = np.full(len(self.rows), width, np.intp)
        self._headers = np.zeros(self.messages, mmsg.MSGHDR)
        self._prepare()
        self.sizes, self.flags = self._headers["size"], self._headers["flags"]

    def _prepare(self) -> None:
        number = np.arange(self.messages, dtype=np.uint64)
        self._iov = np.zeros((self.messages, 2, 2), np.uint64)
        self._iov[:, 0, 0] = mmsg.address(self.rows) + number * self._area
        self._iov[:, 0, 1] = self._area
        self._iov[:, 1, 0] = mmsg.address(self._spill) + number * self._spill.shape[1]
        self._iov[:, 1, 1] = self._spill.shape[1]
        self._headers["iov"] = mmsg.address(self._iov) + number * 32
        self._headers["iov_count"] = 2
        self._headers["control"] = mmsg.address(self.control) + number * CONTROL_SIZE
        self._at = mmsg.address(self._headers.view(np.uint8))

    def receive(self, fd: int) -> int:
        """Messages received; 0 when none waits. Raises OSError."""
        self._headers["control_size"] = CONTROL_SIZE
        return mmsg.receive_many(fd, self._at, self.messages)

    def content(self, message: int, size: int) -> NDArray[np.uint8]:
        """The first `size` bytes of a message; zeros if it was longer than its place."""
        start = message * self._area
        inside = self._bytes[start : start + min(size, self._area)]
        over = size - len(inside)
        if not over:
            return inside
        spilt = self._spill[message, :over]
        return np.concatenate([inside, spilt, np.zeros(over - len(spilt), np.uint8)])
