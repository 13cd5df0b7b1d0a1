"""Batches that cross the border between core and io. Never a single datagram."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dlcpd.core.wire.bitmap import Segments
from dlcpd.core.wire.header import Header
from dlcpd.core.wire.header_batch import Words

Bytes = NDArray[np.uint8]


@dataclass(slots=True)
class Transmit:
    """Data datagrams of one transfer, for one path, all of one traffic class.

    Datagram i is `headers[i]` followed by segment `segments[i]` of `payload`:
    bytes [s * segment_size, (s + 1) * segment_size), shorter for the last
    segment, which is then the last row; its tag is `tags[i]`. `payload` is a view of the
    arena: io points into it and copies nothing.
    """

    peer: int  # index of the flow, as io registered it
    path: int
    headers: Words
    payload: Bytes
    segments: Segments
    segment_size: int
    tags: NDArray[np.uint8]


@dataclass(slots=True)
class Control:
    """One control datagram."""

    peer: int
    path: int
    data: bytes
    tag: int = 0  # the class whose queue it waits in: its own, unless it speaks of one


@dataclass(slots=True)
class Group:
    """Data datagrams of one flow, path, transfer and round, out of a Received.

    `words` are their headers, which agree with `header`, the first of them, in all but
    segment, flags, drop rank, packet number and time. The rest is as in Received.
    """

    header: Header
    words: Words
    rows: Bytes
    index: Segments
    lengths: NDArray[np.intp]


class Arrivals(Protocol):
    """Arrival times of bursts, looked up for the few that are asked for; a list will do."""

    def __getitem__(self, burst: int, /) -> float:
        """Seconds, on the core's clock."""


@dataclass(slots=True)
class Received:
    """Datagrams of one wake-up of one socket.

    `rows[index[i]][:lengths[i]]` is datagram i; rows is io's receive buffer, valid
    until the next receive. `strays` are datagrams that did not fit the row raster.
    """

    path: int
    arrivals: Arrivals  # when the kernel got each burst
    burst: int  # rows per burst: row r came with burst r // burst
    rows: Bytes  # (n, header + segment_size)
    index: Segments
    lengths: NDArray[np.intp]
    strays: list[bytes] = field(default_factory=list)
    stray_arrival: float = 0.0  # seconds, of the newest stray
    tos: NDArray[np.int32] | None = None  # (bursts,) TOS byte of each; None: none is congested
    congested: bool = False  # some are marked Congestion Experienced (RFC 3168)
