"""Sends one chunk to one peer: a pass, then whatever the peer asks for, until it is content."""

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.core.bitmap import Bits, Segments, indices
from dlcpd.core.datagram import Bytes
from dlcpd.core.wire import MAX_ROUND, Kind

ENDING_RUN: Final = 32  # datagrams flagged ENDING: the mark survives the loss of most of them
Key = tuple[int, Kind, int]  # operation, PUSH or PULL, chunk


class State(Enum):
    """Of one chunk to one peer."""

    SENDING = auto()  # segments of the present round are still to be sent
    AWAITING = auto()  # the pass ended; the peer's verdict is out
    DONE = auto()  # the peer is content


@dataclass(slots=True, eq=False)
class ChunkSender:
    """One chunk, one direction. `payload` stays untouched until DONE."""

    key: Key
    payload: Bytes
    start: int  # byte offset of the chunk in its tensor
    segment_size: int
    tag: int
    first_order: Segments
    urgent: bool = False  # somebody waits for the peer's verdict
    state: State = State.SENDING
    round: int = 0
    probes: int = 0  # END datagrams sent without an answer
    sent: int = 0  # segments of the first pass
    repaired: int = 0  # segments sent again
    tail: tuple[int, int, int] = (0, 0, 0)  # path, packet number and acked at the end of the pass
    path_of: NDArray[np.uint8] = field(init=False)  # path each segment was last sent on
    segments: int = field(init=False)
    order: Segments = field(init=False)  # of the present round
    _cursor: int = 0

    def __post_init__(self) -> None:
        self.order = self.first_order
        self.segments = len(self.order)
        self.path_of = np.zeros(self.segments, np.uint8)

    @property
    def remaining(self) -> int:
        """Segments of this round not yet taken."""
        return len(self.order) - self._cursor

    def take(self, limit: int, path: int) -> tuple[Segments, int]:
        """Up to `limit` next segments, to go out on `path`; and how many rows from the
        end of the batch mark the end of the pass. The last one moves to AWAITING.

        Only the batch that ends the pass is marked: one that waits for credit in between
        would look to the peer like a loss.
        """
        taken = self.order[self._cursor : self._cursor + limit]
        self._cursor += len(taken)
        self.path_of[taken] = path
        if self.round:
            self.repaired += len(taken)
        else:
            self.sent += len(taken)
        if self.remaining:
            return taken, 0
        self.state = State.AWAITING
        return taken, min(len(taken), ENDING_RUN)

    def on_nack(self, missing: Bits, round_: int) -> bool:
        """The peer lacks `missing` and asks for `round_`. True: there is something to send.

        A repeated or stale NACK is ignored: END probes replace a lost repair.
        """
        if self.state is State.DONE or not missing.any() or not self._is_next(round_):
            return False
        self.round = round_
        self._begin(indices(missing))
        return True

    def _is_next(self, round_: int) -> bool:
        if self.round == MAX_ROUND:  # the number has run out, the patience has not
            return round_ == MAX_ROUND and self.state is State.AWAITING
        return self.round < round_ <= MAX_ROUND

    def on_veto(self, segments: Segments) -> None:
        """Send `segments` once more although the peer would go without them.

        In a new round: the peer ignores what it sees as late arrivals of an old one.
        """
        self.round = min(self.round + 1, MAX_ROUND)
        self._begin(segments)

    def restart(self) -> None:
        """The first pass found nobody: send it again."""
        self._begin(self.first_order)

    def _begin(self, order: Segments) -> None:
        self.order, self._cursor, self.probes = order, 0, 0
        self.state = State.SENDING

    def on_done(self) -> bool:
        """The peer has what it wants. True the first time."""
        first = self.state is not State.DONE
        self.state = State.DONE
        return first
