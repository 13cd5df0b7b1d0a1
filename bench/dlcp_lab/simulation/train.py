"""Datagrams that travel together: an event of the simulation moves all of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlcp_lab.simulation.losses import Mask
from dlcpd.contract.traffic import DROP_PRECEDENCES
from dlcpd.core.wire.datagram import Bytes, Control, Transmit
from dlcpd.core.wire.header import HEADER_SIZE, MAX_SEGMENTS

FRAMING = 66  # bytes around a datagram on Ethernet: IP, UDP, frame, gap
TAG = 23  # offset of the tag in a datagram
COUNTING = np.arange(MAX_SEGMENTS, dtype=np.float64)
TAGS = np.arange(1 << 8, dtype=np.uint8)  # a tag is a byte


@dataclass(slots=True, eq=False)
class Train:
    """Datagrams of one host, path and traffic class on their way to another host.

    Datagram i is `rows[i][:lengths[i]]`; one control datagram is `control` instead. They reach the
    port `hops[at]`, or their host if that is no port, evenly spread between `first` and `last`.
    """

    source: int
    target: int
    path: int
    count: int
    size: float  # bytes of each on the wire, on average
    tags: NDArray[np.uint8]
    rows: Bytes
    lengths: NDArray[np.intp]
    control: bytes = b""
    marked: Mask | None = None  # those marked Congestion Experienced; None: none is
    trimmed: bool = False  # only headers are left
    hops: Sequence[Any] = ()  # ports
    at: int = 0
    first: float = 0.0  # seconds
    last: float = 0.0

    @property
    def traffic_class(self) -> int:
        return int(self.tags[0]) // DROP_PRECEDENCES

    @property
    def bytes(self) -> float:
        """On the wire."""
        return self.count * self.size

    def arrivals(self) -> NDArray[np.float64]:
        """When each datagram arrives."""
        if self.count == 1:
            return np.array([self.first])
        return self.first + (self.last - self.first) / (self.count - 1) * COUNTING[: self.count]

    def only(self, these: Mask) -> "Train":
        """The train of some of its datagrams, at least one."""
        count = int(np.count_nonzero(these))
        if count == self.count:
            return self
        times = self.arrivals()[these]
        return replace(
            self,
            count=count,
            tags=self.tags[these],
            rows=self.rows[these] if len(self.rows) else self.rows,
            lengths=self.lengths[these] if len(self.lengths) else self.lengths,
            marked=None if self.marked is None else self.marked[these],
            first=float(times[0]),
            last=float(times[-1]),
        )

    def headers(self) -> "Train":
        """The same datagrams, cut to their headers. They travel ahead of data."""
        return replace(
            self,
            size=HEADER_SIZE + FRAMING,
            rows=self.rows[:, :HEADER_SIZE],
            lengths=np.full(self.count, HEADER_SIZE, np.intp),
            trimmed=True,
        )


NO_ROWS, NO_LENGTHS = np.empty((0, 0), np.uint8), np.empty(0, np.intp)


def of_control(control: Control, source: int, target: int) -> Train:
    """One datagram."""
    data = control.data
    tag = data[TAG]
    size = len(data) + FRAMING
    tags = TAGS[tag : tag + 1]
    return Train(source, target, control.path, 1, size, tags, NO_ROWS, NO_LENGTHS, data)


def of_batch(batch: Transmit, source: int, target: int, most: int) -> list[Train]:
    """Trains of up to `most` datagrams. Copies the payload: its memory may change after this."""
    rows, lengths = _filled(batch)
    return [
        Train(
            source,
            target,
            batch.path,
            len(part := lengths[at : at + most]),
            float(part.sum()) / len(part) + FRAMING,
            batch.tags[at : at + most],
            rows[at : at + most],
            part,
        )
        for at in range(0, len(lengths), most)
    ]


def _filled(batch: Transmit) -> tuple[Bytes, NDArray[np.intp]]:
    """The datagrams of a batch as rows, and their lengths."""
    size, segments, payload = batch.segment_size, batch.segments, batch.payload
    count = len(segments)
    rows = np.empty((count, HEADER_SIZE + size), np.uint8)
    heads = np.ascontiguousarray(batch.headers())
    rows[:, :HEADER_SIZE] = heads.view(np.uint8).reshape(count, HEADER_SIZE)
    lengths = np.full(count, HEADER_SIZE + size, np.intp)
    whole = len(payload) // size
    full = segments < whole
    if full.all():
        rows[:, HEADER_SIZE:] = payload[: whole * size].reshape(whole, size)[segments]
        return rows, lengths
    rows[full, HEADER_SIZE:] = payload[: whole * size].reshape(whole, size)[segments[full]]
    rest = payload[whole * size :]
    rows[~full, HEADER_SIZE : HEADER_SIZE + len(rest)] = rest
    lengths[~full] = HEADER_SIZE + len(rest)
    return rows, lengths
