"""A chunk on its way in: where its segments belong, and whether they may go there."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dlcpd.core.bitmap import Segments
from dlcpd.core.datagram import Bytes
from dlcpd.core.packetizer import natural_order
from dlcpd.core.receiver import ChunkReceiver
from dlcpd.core.sender import ChunkSender, Key
from dlcpd.core.wire import HEADER_SIZE


@dataclass(slots=True, eq=False)
class Incoming:
    """One chunk from one peer; `buffer` is exactly its size."""

    key: Key
    rank: int  # of the sender
    receiver: ChunkReceiver
    buffer: Bytes
    segment_size: int

    def place(
        self, rows: Bytes, index: Segments, lengths: NDArray[np.intp], segments: Segments
    ) -> Segments:
        """Copy payloads to their places; returns the segments that were well-formed.

        `rows[index[i]]` holds datagram i of `lengths[i]` bytes for `segments[i]`. A
        datagram whose length is not its segment's, or whose segment the chunk has not,
        is left out: nothing is ever written outside `buffer` (P7).
        """
        size, full = self.segment_size, len(self.buffer) // self.segment_size
        stop = HEADER_SIZE + size
        if (lengths == stop).all() and int(segments.max()) < full:
            grid = self.buffer[: full * size].reshape(full, size)
            self._copy_full(grid, rows[:, HEADER_SIZE:stop], index, segments)
            return segments
        tail = len(self.buffer) - full * size
        expected = np.where(segments < full, stop, HEADER_SIZE + tail)
        good = (lengths == expected) & (segments < self.receiver.segments)
        whole = good & (segments < full)
        if whole.any():
            grid = self.buffer[: full * size].reshape(full, size)
            grid[segments[whole]] = rows[index[whole], HEADER_SIZE:stop]
        if tail and (good & (segments == full)).any():
            row = int(index[np.flatnonzero(good & (segments == full))[0]])
            self.buffer[full * size :] = rows[row, HEADER_SIZE : HEADER_SIZE + tail]
        placed: Segments = segments[good]
        return placed

    @staticmethod
    def _copy_full(grid: Bytes, payloads: Bytes, index: Segments, segments: Segments) -> None:
        """One block copy when rows and segments both run on without a gap: the usual case.

        `index` ascends, so its ends tell whether it has a gap; `segments` may be in any order.
        """
        count = len(segments)
        row, segment = int(index[0]), int(segments[0])
        if index[-1] - row + 1 == count and (segments - segment == natural_order(count)).all():
            grid[segment : segment + count] = payloads[row : row + count]
        else:
            grid[segments] = payloads[index]


class Host(Protocol):
    """What a flow needs to know of the operations it carries: a session implements it."""

    def open_incoming(self, rank: int, key: Key) -> Incoming | str:
        """The chunk to receive into, or the reason to discard ("duplicate", "stale", ...)."""

    def on_received(self, incoming: Incoming, now: float) -> None:
        """`incoming` is complete."""

    def on_acknowledged(self, rank: int, sender: ChunkSender, now: float) -> None:
        """The peer is content with `sender`'s chunk."""

    def on_given_up(self, rank: int, sender: ChunkSender, missing: Segments) -> Segments:
        """The peer would go without `missing`. Keep them as residual and return an empty
        array, or return those that must not be given up."""

    def count(self, reason: str, datagrams: int = 1) -> None:
        """Datagrams were discarded, or something else worth a counter happened."""

    def set_timer(self, key: Any, at: float) -> None:
        """Call the owner back at `at`."""

    def cancel_timer(self, key: Any) -> None:
        """Do not."""
