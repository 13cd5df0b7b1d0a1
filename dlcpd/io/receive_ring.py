"""The receiving half of a UDP socket: recvmmsg into a raster of datagram-sized rows.

A message of the kernel is a burst that GRO joined (up to `run` datagrams, at a stride of
exactly one row), or a single datagram. Both land so that row r of message m is datagram
m * run + r, and a batch is read with a handful of vector operations.
"""

import socket
import time
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.core.datagram import Received
from dlcpd.core.wire import Kind
from dlcpd.io import mmsg

CONTROL_SIZE: Final = 128  # bytes of control messages per received message
# Offsets (32-bit words) in the received control data. The order is the kernel's: socket-level
# time stamp (16 + 16 bytes), UDP_GRO (16 + 4, padded to 24; only on joined messages), TOS.
STAMP: Final = slice(4, 8)
_SECOND: Final = 8
_SECOND_KIND, _SECOND_VALUE = _SECOND + 3, _SECOND + 4
_THIRD_VALUE: Final = _SECOND + 6 + 4
_CE: Final = 3
_MAX_WAIT: Final = 1.0  # seconds; the kernel stamps with a wall clock, which may be stepped


class ReceiveRing:
    """`rows` datagrams of `width` bytes, `run` of them per message."""

    def __init__(self, path: int, width: int, run: int, rows: int) -> None:
        self.path, self.width, self.run = path, width, run
        self.messages = rows // run
        self.full_calls = 0  # calls in a row that filled every message with one datagram
        self._rows = np.zeros((self.messages * run, width), np.uint8)
        self._flat = self._rows.data.cast("B")
        self._control = np.zeros((self.messages, CONTROL_SIZE // 4), np.int32)
        number = np.arange(self.messages, dtype=np.uint64)
        self._iov = np.zeros((self.messages, 2), np.uint64)
        self._iov[:, 0] = mmsg.address(self._rows) + number * (run * width)
        self._iov[:, 1] = run * width
        self._headers = np.zeros(self.messages, mmsg.MSGHDR)
        self._headers["iov"] = mmsg.address(self._iov) + number * 16
        self._headers["iov_count"] = 1
        self._headers["control"] = mmsg.address(self._control) + number * CONTROL_SIZE
        self._at = mmsg.address(self._headers.view(np.uint8))
        self._kinds = self._control[:, _SECOND_KIND]
        self._seconds, self._thirds = (
            self._control[:, _SECOND_VALUE],
            self._control[:, _THIRD_VALUE],
        )
        self._control_sizes, self._sizes = self._headers["control_size"], self._headers["size"]
        self._flags = self._headers["flags"]
        self._none = np.zeros(0, np.intp)
        self._numbers = np.arange(len(self._rows), dtype=np.intp)
        self._full = np.full(len(self._rows), width, np.intp)

    def receive(self, fd: int) -> tuple[Received | None, bool]:
        """What waits, and whether that was all of it.

        The batch points into this object's buffer: use it before the next call.
        """
        self._control_sizes[:] = CONTROL_SIZE
        count = mmsg.receive_many(fd, self._at, self.messages)
        if not count:
            return None, True
        arrivals = Stamps(self._control[:count])
        batch = Received(self.path, arrivals, self.run, self._rows, self._none, self._none)
        if self.run == 1:
            self._singles(batch, count)
        else:
            self._bursts(batch, count)
        if batch.strays:
            batch.stray_arrival = arrivals[-1]
        self._judge(count, len(batch.index) + len(batch.strays))
        return batch, count < self.messages

    def _judge(self, messages: int, datagrams: int) -> None:
        useless = messages == self.messages and datagrams == messages
        self.full_calls = self.full_calls + 1 if useless else 0

    def _singles(self, batch: Received, count: int) -> None:
        """One datagram per message: nothing is joined, rows are messages."""
        self._note_tos(batch, self._seconds[:count])
        lengths = self._sizes[:count].astype(np.intp)
        lengths += self._flags[:count] & socket.MSG_TRUNC != 0  # longer than a row, and shown so
        control = (self._rows[:count, 1] != Kind.DATA) | (lengths > self.width)
        if not control.any():
            batch.index, batch.lengths = self._numbers[:count], lengths
            return
        batch.strays = [
            self._rows[row, : lengths[row]].tobytes().ljust(lengths[row], b"\0")
            for row in np.flatnonzero(control).tolist()
        ]
        batch.index = np.flatnonzero(~control)
        batch.lengths = lengths[batch.index]

    @staticmethod
    def _note_tos(batch: Received, tos: NDArray[np.int32]) -> None:
        batch.tos = tos
        batch.congested = bool(((tos & _CE) == _CE).any())

    def _bursts(self, batch: Received, count: int) -> None:
        """Rows and lengths of data datagrams; copies of control and of odd-sized ones.

        Loops over messages, of which there are few: a message is a whole burst.
        """
        width, burst = self.width, self.run * self.width
        kinds, seconds = self._kinds[:count].tolist(), self._seconds[:count].tolist()
        sizes = self._sizes[:count].tolist()
        spans: list[tuple[int, int]] = []  # of rows, neighbours made one
        strays: list[bytes] = []
        short: list[tuple[int, int]] = []  # row, length
        for message in range(count):
            size, joined = sizes[message], kinds[message] == mmsg.UDP_GRO
            first = message * self.run
            if size == burst:
                rows = self.run
            elif joined and seconds[message] != width:
                strays += self._split(message, size, seconds[message])
                continue
            elif size <= width and (size < 2 or self._flat[first * width + 1] != Kind.DATA):
                strays.append(bytes(self._flat[first * width : first * width + size]))
                continue
            elif size <= width or joined:
                rows = -(-size // width)
                if size != rows * width:
                    short.append((first + rows - 1, size - (rows - 1) * width))
            else:
                strays += self._split(message, size, size)
                continue
            if spans and spans[-1][1] == first:
                spans[-1] = (spans[-1][0], first + rows)
            else:
                spans.append((first, first + rows))
        batch.strays = strays
        thirds = self._thirds[:count].tolist()
        tos = [
            t if k == mmsg.UDP_GRO else s for k, s, t in zip(kinds, seconds, thirds, strict=True)
        ]
        if any(each & _CE == _CE for each in tos):
            self._note_tos(batch, np.array(tos, np.int32))
        if spans:
            self._point(batch, spans, short)

    def _point(
        self, batch: Received, spans: list[tuple[int, int]], short: list[tuple[int, int]]
    ) -> None:
        if len(spans) == 1:  # no gap: the usual case
            batch.index = self._numbers[slice(*spans[0])]
        else:
            batch.index = np.concatenate([self._numbers[slice(*span)] for span in spans])
        batch.lengths = self._full[: len(batch.index)]
        if short:
            batch.lengths = batch.lengths.copy()
            for row, size in short:
                batch.lengths[np.searchsorted(batch.index, row)] = size

    def _split(self, message: int, size: int, stride: int) -> list[bytes]:
        """A joined message of datagrams smaller than the raster, or one that is larger."""
        start, step = message * self.run * self.width, max(stride, 1)
        end = start + min(size, self.run * self.width)
        return [bytes(self._flat[at : min(at + step, end)]) for at in range(start, end, step)]


class Stamps:
    """Kernel time stamps of messages, turned into the core's clock one by one as needed.

    What passed since a stamp was time in this host, not in the network. Both clocks are read
    here, after the receive call: it copies for a millisecond when there is much. Ours comes
    last: a preemption between the two makes a datagram look late, never early, and early ones
    are what the base delay of a path is taken from.
    """

    def __init__(self, control: NDArray[np.int32]) -> None:
        self._stamps, self._wall = control[:, STAMP], time.time_ns()
        self._now = time.monotonic()

    def __getitem__(self, message: int, /) -> float:
        low, high, nanoseconds, _ = self._stamps[message].tolist()
        stamp = (high << 32 | low & 0xFFFFFFFF) * 1_000_000_000 + nanoseconds
        waited: float = max(self._wall - stamp, 0) * 1e-9
        return self._now - min(waited, _MAX_WAIT)
