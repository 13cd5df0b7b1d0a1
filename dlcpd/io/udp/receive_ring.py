"""The receiving half of a UDP socket: recvmmsg into a raster of datagram-sized rows.

A message of the kernel is a burst that GRO joined (datagrams at a stride of exactly one row), or a
single datagram. Both land so that row r of message m is datagram m * run + r, and a batch is read
with a handful of vector operations. Peers may send segments of different sizes: datagrams that do
not fit the raster are copied, and the raster takes the most frequent size.
"""

import socket
import time
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.core.wire.checksum import Keyring
from dlcpd.core.wire.header import HEADER_SIZE, Kind
from dlcpd.core.wire.rows import Received
from dlcpd.core.wire.sizes import MAX_SEGMENT
from dlcpd.io.udp import mmsg
from dlcpd.io.udp.loss import NO_CORRUPTION, Corrupt, RandomLoss
from dlcpd.io.udp.raster import Raster

RECEIVE_BYTES: Final = 2 << 20  # per receive call: half or twice as many is no faster
MAX_RASTERS: Final = 8  # kept; more sizes than this cause new rasters
LEAST_WIDTH: Final = HEADER_SIZE + 512  # bytes; smaller datagrams are not bulk data
LONGEST: Final = HEADER_SIZE + MAX_SEGMENT  # bytes of the longest dlcpd datagram
# Offsets (32-bit words) in the received control data. The order is the kernel's: socket-level
# time stamp (16 + 16 bytes), UDP_GRO (16 + 4, padded to 24; only on joined messages), TOS.
STAMP: Final = slice(4, 8)
_SECOND: Final = 8
_SECOND_KIND, _SECOND_VALUE = _SECOND + 3, _SECOND + 4
_THIRD_VALUE: Final = _SECOND + 6 + 4
_CE: Final = 3
_MAX_WAIT: Final = 1.0  # seconds; the kernel stamps with a wall clock, which may be stepped


class ReceiveRing:
    """Up to RECEIVE_BYTES per call. `width`: bytes of the datagrams that are expected at first;
    `gro`: whether the kernel joins them."""

    longest = LONGEST

    def __init__(
        self,
        path: int,
        width: int,
        *,
        gro: bool,
        loss: RandomLoss,
        corrupt: Corrupt = NO_CORRUPTION,
        keys: Keyring | None = None,
    ) -> None:
        self.path, self.gro, self._loss = path, gro, loss
        self._corrupt, self._keys = corrupt, keys
        self.calls = 1  # system calls of the last `receive`
        self.full_calls = 0  # calls that filled every message, since one was joined
        self._rasters: dict[int, Raster] = {}
        self._none = np.zeros(0, np.intp)
        self._use(width)

    def receive(self, fd: int) -> tuple[list[Received], bool]:
        """The batches that wait, and whether nothing is left; control is in the first batch.

        The batches point into this object's buffer: use them before the next call.
        """
        raster = self._raster
        count = raster.receive(fd)
        if not count:
            return [], True
        arrivals = Stamps(raster.control[:count])
        batch = Received(self.path, arrivals, raster.run, raster.rows, self._none, self._none)
        others = self._bursts(batch, count) if self.gro else self._singles(batch, count)
        if batch.strays:
            batch.stray_arrival = arrivals[-1]
        datagrams = sum(len(each.index) for each in (batch, *others)) + len(batch.strays)
        if datagrams > count:
            self.full_calls = 0
        elif count == raster.messages:
            self.full_calls += 1
        self._follow(batch, others)
        batches = [batch, *others]
        for each in batches:
            each.keys = self._keys
            if self._loss:
                self._lose(each)
            if self._corrupt:
                each.corrupted = self._corrupt.rows(each.rows, each.index, each.lengths)
                each.strays, clean = [self._corrupt.one(d) for d in each.strays], each.strays
                each.corrupted += sum(a != b for a, b in zip(each.strays, clean, strict=True))
        return batches, count < raster.messages

    def _lose(self, batch: Received) -> None:
        kept = self._loss.survivors(len(batch.index))
        strays = self._loss.survivors(len(batch.strays)).tolist()
        batch.lost = len(kept) - int(np.count_nonzero(kept)) + strays.count(False)
        batch.index, batch.lengths = batch.index[kept], batch.lengths[kept]
        batch.strays = [data for data, here in zip(batch.strays, strays, strict=True) if here]

    def _use(self, width: int) -> None:
        if len(self._rasters) >= MAX_RASTERS and width not in self._rasters:
            self._rasters.clear()
        if width not in self._rasters:
            self._rasters[width] = Raster(width, RECEIVE_BYTES, gro=self.gro, longest=self.longest)
        self._raster = self._rasters[width]

    def _follow(self, batch: Received, others: list[Received]) -> None:
        """For the next call, choose the raster that fits most datagrams of this one."""
        if not others:
            return
        sizes: dict[int, int] = {}
        for each in others:
            sizes[each.rows.shape[1]] = sizes.get(each.rows.shape[1], 0) + len(each.index)
        width = max(sizes, key=sizes.__getitem__)
        if sizes[width] > len(batch.index) and LEAST_WIDTH <= width <= self.longest:
            self._use(width)

    def _singles(self, batch: Received, count: int) -> list[Received]:
        """One datagram per message: nothing is joined, rows are messages."""
        raster = self._raster
        self._note_tos(batch, raster.control[:count, _SECOND_VALUE])
        lengths = raster.sizes[:count].astype(np.intp)
        lengths += raster.flags[:count] & socket.MSG_TRUNC != 0  # too long: count one byte more
        control, long = raster.rows[:count, 1] != Kind.DATA, lengths > raster.width
        odd = control | long
        if not np.count_nonzero(odd):
            batch.index, batch.lengths = raster.numbers[:count], lengths
            return []
        batch.index = np.flatnonzero(~odd)
        batch.lengths = lengths[batch.index]
        batch.strays = [
            bytes(raster.content(row, int(lengths[row])))
            for row in np.flatnonzero(control | (lengths > self.longest)).tolist()
        ]
        too_wide = np.flatnonzero(long & ~control & (lengths <= self.longest)).tolist()
        return [self._apart(batch, row, int(lengths[row]), int(lengths[row])) for row in too_wide]

    @staticmethod
    def _note_tos(batch: Received, tos: NDArray[np.int32]) -> None:
        batch.tos = tos
        batch.congested = bool(np.count_nonzero(tos & _CE == _CE))

    def _bursts(self, batch: Received, count: int) -> list[Received]:
        """Rows and lengths of data datagrams; copies of control; separate batches for bursts of
        another stride.

        Loops over messages, of which there are few: a message is a whole burst.
        """
        raster = self._raster
        width, run, flat = raster.width, raster.run, raster.flat
        joined, strides, tos = self._control_of(count)
        if any(each & _CE == _CE for each in tos):
            self._note_tos(batch, np.array(tos, np.int32))
        spans: list[tuple[int, int]] = []  # of rows, neighbours merged
        short: list[tuple[int, int]] = []  # row, length
        others: list[Received] = []
        for message, size in enumerate(raster.sizes[:count].tolist()):
            first, stride = message * run, strides[message] if joined[message] else size
            is_data = size > 1 and flat[first * width + 1] == Kind.DATA
            if (joined[message] and stride != width) or size > run * width or stride > width:
                if is_data and stride <= self.longest:
                    others.append(self._apart(batch, message, size, stride))
                else:
                    batch.strays += _split(raster.content(message, size), stride)
                continue
            if not is_data and not joined[message]:
                batch.strays.append(bytes(raster.content(message, size)))
                continue
            rows = -(-size // width)
            if size != rows * width:
                short.append((first + rows - 1, size - (rows - 1) * width))
            if spans and spans[-1][1] == first:
                spans[-1] = (spans[-1][0], first + rows)
            else:
                spans.append((first, first + rows))
        if spans:
            self._point(batch, spans, short)
        return others

    def _control_of(self, count: int) -> tuple[list[bool], list[int], list[int]]:
        """Of each message: whether it is joined, then at which stride, and its TOS byte."""
        words = self._raster.control[:count]
        kinds, seconds = words[:, _SECOND_KIND].tolist(), words[:, _SECOND_VALUE].tolist()
        joined = [kind == mmsg.UDP_GRO for kind in kinds]
        thirds = words[:, _THIRD_VALUE].tolist()
        tos = [t if j else s for j, s, t in zip(joined, seconds, thirds, strict=True)]
        return joined, seconds, tos

    def _point(
        self, batch: Received, spans: list[tuple[int, int]], short: list[tuple[int, int]]
    ) -> None:
        numbers = self._raster.numbers
        if len(spans) == 1:  # no gap: the usual case
            batch.index = numbers[slice(*spans[0])]
        else:
            batch.index = np.concatenate([numbers[slice(*span)] for span in spans])
        batch.lengths = self._raster.full[: len(batch.index)]
        if short:
            batch.lengths = batch.lengths.copy()
            for row, size in short:
                batch.lengths[np.searchsorted(batch.index, row)] = size

    def _apart(self, batch: Received, message: int, size: int, stride: int) -> Received:
        """A batch of one message, whose datagrams are not as long as the raster's rows."""
        rows = -(-size // stride)
        copy = np.zeros((rows, stride), np.uint8)
        copy.reshape(-1)[:size] = self._raster.content(message, size)
        lengths = np.full(rows, stride, np.intp)
        lengths[-1] = size - (rows - 1) * stride
        arrivals = [batch.arrivals[message]]
        made = Received(self.path, arrivals, rows, copy, np.arange(rows, dtype=np.intp), lengths)
        if batch.tos is not None and batch.congested:
            self._note_tos(made, batch.tos[message : message + 1])
        return made


def _split(content: NDArray[np.uint8], stride: int) -> list[bytes]:
    """The control datagrams of a joined message."""
    step = max(stride, 1)
    return [bytes(content[at : at + step]) for at in range(0, len(content), step)] or [b""]


class Stamps:
    """Kernel time stamps of messages, converted to the core's clock one by one as needed.

    The time since a stamp was spent in this host, not in the network. Both clocks are read here,
    after the receive call, which copies for a millisecond when there is much. The core's clock is
    read last: a preemption between the two makes a datagram look late, never early, and the base
    delay of a path comes from early ones.
    """

    def __init__(self, control: NDArray[np.int32]) -> None:
        self._stamps, self._wall = control[:, STAMP], time.time_ns()
        self._now = time.monotonic()

    def __getitem__(self, message: int, /) -> float:
        low, high, nanoseconds, _ = self._stamps[message].tolist()
        stamp = (high << 32 | low & 0xFFFFFFFF) * 1_000_000_000 + nanoseconds
        waited: float = max(self._wall - stamp, 0) * 1e-9
        return self._now - min(waited, _MAX_WAIT)
