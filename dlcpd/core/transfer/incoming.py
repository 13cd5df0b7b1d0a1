"""An incoming transfer: the place of each segment, and the checks before it is written."""

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
    sum: "Sum | None" = None  # the transfer is one of its operands; io may add it at once
    operand: int = 0  # its index in the sum; `buffer` is its memory
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
        """Take the whole payload, from memory that does not change until the owner has been told.

        The last operand of a sum is added from where it is, without a copy.
        """
        if self.sum is not None and self.last:
            self.sum.operands[self.operand] = payload
        else:
            self.buffer[:] = payload
        self.receiver.fill(now)

    def left(self, missing: int) -> None:
        """Io has placed and marked segments by itself; `missing` are still missing."""
        self.receiver.missing = missing

    def put(
        self, rows: Bytes, index: Segments, lengths: NDArray[np.intp], segments: Segments
    ) -> Segments:
        """Copy payloads to their places; returns the segments that were well-formed.

        `rows[index[i]]` holds datagram i of `lengths[i]` bytes for `segments[i]`. Datagrams with a
        wrong length, or with a segment that the transfer does not have, are left out: nothing is
        ever written outside `buffer` (P7).
        """
        whole, stop = len(self._grid), HEADER_SIZE + self.segment_size
        tail = HEADER_SIZE + len(self._tail)
        count = len(segments)
        if tail > HEADER_SIZE and segments[-1] == whole and lengths[-1] == tail:
            count -= 1  # usually the last, in the order of sending
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
        """As `put`, where some datagrams are malformed or out of order."""
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
        """One block copy where rows and segments are both contiguous: the usual case.

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

    `here` counts the operands of each segment that have arrived. Io updates it and, with the last
    operand, writes the sum to `target`. The operation adds up the segments that io did not.
    """

    target: Bytes
    operands: list[Bytes]  # in the order of addition
    here: NDArray[np.uint8]
    divide_by: int


class Placement(Protocol):
    """The table of open transfers of an io that places segments before core sees them."""

    def open(self, token: int, incoming: Incoming) -> None:
        """From now on, io places data with `token` for `incoming`."""

    def refresh(self, incoming: Incoming) -> None:
        """The receiver of `incoming` has changed: its missing segments, or the least round."""

    def close(self, incoming: Incoming) -> None:
        """From now on, io writes nothing to the place of `incoming`."""


class NoPlacement:
    """For an io that leaves all placement to core."""

    def open(self, token: int, incoming: Incoming) -> None:
        """Does nothing."""

    def refresh(self, incoming: Incoming) -> None:
        """Does nothing."""

    def close(self, incoming: Incoming) -> None:
        """Does nothing."""


class FlowOwner(Protocol):
    """Callbacks of a flow to the owner of the operations that it carries: a session."""

    number: int  # of the session

    def settle_implied(self, rank: int, key: Key, now: float) -> None:
        """A transfer begins to arrive: acknowledge the transfers that its sender must have received
        before it."""

    def open_incoming(self, rank: int, key: Key) -> Incoming | str:
        """The destination of a transfer, or the reason to discard it ("duplicate", "stale", ...).
        Call `settle_implied` first; this changes no other transfer."""

    def on_received(self, incoming: Incoming, now: float) -> None:
        """`incoming` is complete."""

    def on_acknowledged(self, rank: int, sender: TransferSender, now: float) -> None:
        """The peer has what `sender` sends."""

    def on_waived(
        self, rank: int, sender: TransferSender, missing: Segments, *, told: bool
    ) -> Segments:
        """The peer asks to waive `missing`: keep them as residual and return an empty array, or
        return those that must not be waived. `told`: it has waived them under a permit, and
        nothing can be returned."""

    def on_passed(self, rank: int, key: Key, now: float) -> None:
        """A pass over a transfer of this rank ended: the peer may not even know its operation."""

    def on_booked(self, rank: int, key: Key) -> None:
        """The peer keeps what this rank waived of its transfer."""

    def on_path(self, rank: int, path: int, state: PathState) -> None:
        """A path towards `rank` went down, came up, or became gray or clear."""

    def count(self, reason: str, datagrams: int = 1) -> None:
        """Datagrams were discarded, or something else worth a counter happened."""

    def set_timer(self, key: Any, at: float) -> None:
        """Call the owner back at `at`."""

    def cancel_timer(self, key: Any) -> None:
        """Cancel the timer of `key`."""
