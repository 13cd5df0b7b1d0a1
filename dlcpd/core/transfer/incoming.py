"""A transfer on its way in: where its segments belong, and whether they may go there."""

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dlcpd.core.paths.health import PathState
from dlcpd.core.transfer.packetizer import natural_order
from dlcpd.core.transfer.receiver import TransferReceiver
from dlcpd.core.transfer.sender import TransferSender
from dlcpd.core.wire.bitmap import Segments
from dlcpd.core.wire.datagram import Bytes, Placed
from dlcpd.core.wire.header import HEADER_SIZE, Key


@dataclass(slots=True, eq=False)
class Incoming:
    """One transfer from one peer; `buffer` is exactly its size."""

    key: Key
    rank: int  # of the sender
    receiver: TransferReceiver
    buffer: Bytes
    segment_size: int
    sum: "Sum | None" = None  # what arrives is one of its operands; io may add it up at once
    operand: int = 0  # which one; `buffer` is its memory
    last: bool = False  # the sum waits for this operand alone
    handle: int = -1  # see Target
    opened: int = 0
    _grid: Bytes = field(init=False)  # whole segments, one a row
    _tail: Bytes = field(init=False)  # the short last one, or empty

    def __post_init__(self) -> None:
        whole = len(self.buffer) // self.segment_size
        self._grid = self.buffer[: whole * self.segment_size].reshape(whole, self.segment_size)
        self._tail = self.buffer[whole * self.segment_size :]

    def place(
        self,
        rows: Bytes,
        index: Segments,
        lengths: NDArray[np.intp],
        segments: Segments,
        round_: int,
    ) -> Placed:
        """Copy payloads to their places, as `put` does, and mark what came."""
        if round_ < self.receiver.least_round:
            return Placed(0, len(segments), 0)
        good = self.put(rows, index, lengths, segments)
        fresh = self.receiver.mark(good)
        return Placed(fresh, len(good) - fresh, len(segments) - len(good))

    def fill(self, payload: Bytes, now: float) -> None:
        """Take all of it at once, from memory that stays as it is until the owner has been told.

        The last operand of a sum is added from where it is, without a copy.
        """
        if self.sum is not None and self.last:
            self.sum.operands[self.operand] = payload
        else:
            self.buffer[:] = payload
        self.receiver.fill(now)

    def left(self, missing: int) -> None:
        """Io has placed and marked segments by itself, and so many are still missing."""
        self.receiver.missing = missing

    def put(
        self, rows: Bytes, index: Segments, lengths: NDArray[np.intp], segments: Segments
    ) -> Segments:
        """Copy payloads to their places; returns the segments that were well-formed.

        `rows[index[i]]` holds datagram i of `lengths[i]` bytes for `segments[i]`. A
        datagram whose length is not its segment's, or whose segment the transfer has not,
        is left out: nothing is ever written outside `buffer` (P7).
        """
        whole, stop = len(self._grid), HEADER_SIZE + self.segment_size
        tail = HEADER_SIZE + len(self._tail)
        count = len(segments)
        if tail > HEADER_SIZE and segments[-1] == whole and lengths[-1] == tail:
            count -= 1  # usually the last, as it is sent
        odd = (lengths[:count] != stop) | (segments[:count] >= whole)
        if np.count_nonzero(odd):
            return self._put_well_formed(rows, index, lengths, segments)
        if count:
            self._copy(rows[:, HEADER_SIZE:stop], index[:count], segments[:count])
        if count < len(segments):
            self._tail[:] = rows[index[count], HEADER_SIZE:tail]
        return segments

    def _put_well_formed(
        self, rows: Bytes, index: Segments, lengths: NDArray[np.intp], segments: Segments
    ) -> Segments:
        """As `put`, of datagrams some of which are at fault, or out of order."""
        whole, stop = len(self._grid), HEADER_SIZE + self.segment_size
        tail = HEADER_SIZE + len(self._tail)
        good = (lengths == np.where(segments < whole, stop, tail)) & (
            segments < self.receiver.segments
        )
        full = good & (segments < whole)
        if full.any():  # else rows may be narrower: another peer's segments are shorter
            self._grid[segments[full]] = rows[index[full], HEADER_SIZE:stop]
        short = np.flatnonzero(good & ~full)
        if len(short):
            self._tail[:] = rows[index[short[0]], HEADER_SIZE:tail]
        placed: Segments = segments[good]
        return placed

    def _copy(self, payloads: Bytes, index: Segments, segments: Segments) -> None:
        """One block copy when rows and segments both run on without a gap: the usual case.

        `index` ascends, so its ends tell whether it has a gap; `segments` may be in any order.
        """
        count = len(segments)
        row, segment = int(index[0]), int(segments[0])
        gaps = np.count_nonzero(segments - segment != natural_order(count))
        if index[-1] - row + 1 == count and not gaps:
            self._grid[segment : segment + count] = payloads[row : row + count]
        else:
            self._grid[segments] = payloads[index]


class Sum(Protocol):
    """float32 operands that io may add up segment by segment, as they come.

    `here` counts, by segment, the operands that are here; io counts on and, when it has the last
    one, writes their sum to `target`. Segments that it has not got to are added up by others.
    """

    target: Bytes
    operands: list[Bytes]  # in the order of addition
    here: NDArray[np.uint8]
    divide_by: int


class Placement(Protocol):
    """The table of open transfers of an io that places segments before core sees them."""

    def open(self, token: int, incoming: Incoming) -> None:
        """From now on what comes with `token` for `incoming` goes to its place."""

    def refresh(self, incoming: Incoming) -> None:
        """Its receiver has changed: what is missing, or the least round."""

    def close(self, incoming: Incoming) -> None:
        """From now on nothing is written to its place."""


class NoPlacement:
    """Of an io that leaves everything to core."""

    def open(self, token: int, incoming: Incoming) -> None:
        """Nothing."""

    def refresh(self, incoming: Incoming) -> None:
        """Nothing."""

    def close(self, incoming: Incoming) -> None:
        """Nothing."""


class FlowOwner(Protocol):
    """What a flow needs to know of the operations it carries: a session implements it."""

    number: int  # of the session

    def settle_implied(self, rank: int, key: Key, now: float) -> None:
        """A transfer begins to come: acknowledge what its sender must have had before it."""

    def open_incoming(self, rank: int, key: Key) -> Incoming | str:
        """Where a transfer goes, or the reason to discard ("duplicate", "stale", ...). Call
        `settle_implied` first; this changes nothing of other transfers."""

    def on_received(self, incoming: Incoming, now: float) -> None:
        """`incoming` is complete."""

    def on_acknowledged(self, rank: int, sender: TransferSender, now: float) -> None:
        """The peer has what `sender` sends."""

    def on_waived(self, rank: int, sender: TransferSender, missing: Segments) -> Segments:
        """The peer would go without `missing`. Keep them as residual and return an empty
        array, or return those that must not be waived."""

    def on_path(self, rank: int, path: int, state: PathState) -> None:
        """A path towards `rank` went down, came up, or became gray or clear."""

    def count(self, reason: str, datagrams: int = 1) -> None:
        """Datagrams were discarded, or something else worth a counter happened."""

    def set_timer(self, key: Any, at: float) -> None:
        """Call the owner back at `at`."""

    def cancel_timer(self, key: Any) -> None:
        """Do not."""
