"""Batches of datagrams that core and io exchange."""

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dlcpd.core.wire.bitmap import Segments
from dlcpd.core.wire.header import HEADER_SIZE, Header
from dlcpd.core.wire.header_batch import Words, build

Bytes = NDArray[np.uint8]


@dataclass(slots=True)
class Transmit:
    """Data datagrams of one transfer, for one path, all of one traffic class.

    Datagram i is a header followed by segment `segments[i]` of `payload`:
    bytes [s * segment_size, (s + 1) * segment_size), shorter for the last
    segment, which is then the last row; its tag is `tags[i]`. `payload` is a view of the
    arena: io points into it and copies nothing.
    """

    peer: int  # index of the flow, as io registered it
    path: int
    first: Header  # of the first datagram, with segment, tag and flags 0
    flags: NDArray[np.uint8]
    payload: Bytes
    segments: Segments
    segment_size: int
    tags: NDArray[np.uint8]

    @property
    def size(self) -> int:
        """Bytes, as if no segment were short."""
        return len(self.segments) * (HEADER_SIZE + self.segment_size)

    def headers(self) -> Words:
        """Headers of all datagrams, shape (n, 10); the first STAMPED carry `first.sent_at`."""
        return build(self.first, self.segments, self.tags, self.flags)

    def rest(self, sent: int) -> "Transmit":
        """The batch without its first `sent` datagrams."""
        number = (self.first.packet_number + sent) & 0xFFFFFFFF
        return Transmit(
            self.peer,
            self.path,
            self.first._replace(packet_number=number),
            self.flags[sent:],
            self.payload,
            self.segments[sent:],
            self.segment_size,
            self.tags[sent:],
        )


@dataclass(slots=True)
class Control:
    """One control datagram."""

    peer: int
    path: int
    data: bytes
    tag: int = 0  # of the header: its class is that of the queue it waits in


class Placed(NamedTuple):
    """Datagrams of a group by result."""

    fresh: int  # segments that were missing
    duplicate: int  # received before, or too late: the memory is unchanged
    odd: int  # wrong length, or a segment that the transfer does not have


class Target(Protocol):
    """An open transfer: core.transfer.incoming.Incoming."""

    handle: int  # how io's own table of open transfers knows it; -1: not at all
    opened: int  # when, as io counts

    def place(
        self,
        rows: Bytes,
        index: Segments,
        lengths: NDArray[np.intp],
        segments: Segments,
        round_: int,
    ) -> Placed:
        """Copy payloads to their places and mark what came."""

    def left(self, missing: int) -> None:
        """Io has placed segments by itself; `missing` are still missing."""


class DatagramGroup(Protocol):
    """Consecutive data datagrams of one flow, path, transfer and round."""

    @property
    def header(self) -> Header:
        """Header of the first datagram; it has been checked, and stands for all."""

    @property
    def count(self) -> int:
        """Datagrams."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def newest(self) -> int:
        """Packet number of the last."""

    @property
    def asks(self) -> bool:
        """Whether some carry ASK."""

    @property
    def ending(self) -> bool:
        """Whether the last carries ENDING."""

    @property
    def marked(self) -> int:
        """Datagrams that a queue marked Congestion Experienced (RFC 3168)."""

    @property
    def arrived_at(self) -> float:
        """Arrival of the first datagram at the kernel, seconds on the core's clock."""

    def place(self, target: Target) -> Placed:
        """Copy the segments to their places in `target`."""

    def copy(self) -> "DatagramGroup":
        """A copy outside io's receive buffer, which is valid only until the next call."""


class Batch(Protocol):
    """Datagrams of one wake-up of one socket."""

    strays: list[bytes]  # control datagrams, and data outside the raster of rows
    stray_arrival: float  # seconds, of the newest stray
    lost: int  # datagrams discarded on purpose, to inject loss
    corrupted: int  # datagrams changed on purpose

    @property
    def count(self) -> int:
        """Datagrams beside the strays."""

    def groups(self, counters: Counter[str]) -> list[DatagramGroup]:
        """The data, in order. Refused datagrams are counted by reason. May add to `strays`."""
