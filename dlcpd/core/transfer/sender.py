"""Sends one transfer: a first pass, then the segments that the peer asks for, until it is done.

A pass sends runs of segments of one traffic class, the most urgent first.
"""

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.contract.traffic import DROP_PRECEDENCES, PROTECTED
from dlcpd.core.transfer.budget import Budget
from dlcpd.core.transfer.permit import Permit
from dlcpd.core.wire.bitmap import Bits, Segments, indices
from dlcpd.core.wire.datagram import Bytes
from dlcpd.core.wire.header import MAX_ROUND, Key

ENDING_RUN: Final = 32  # datagrams flagged ENDING: the mark survives the loss of most of them
Tags = NDArray[np.uint8]  # by segment: traffic class and drop precedence


class SenderState(Enum):
    """State of one transfer."""

    SENDING = auto()  # segments of the present round are still to be sent
    AWAITING = auto()  # the pass ended; the peer's verdict is outstanding
    DONE = auto()  # the peer needs no more segments


@dataclass(slots=True, eq=False)
class TransferSender:
    """One transfer. `payload` stays untouched until DONE.

    `first_order` has segments of one class side by side. A short last segment comes last of
    its class: only the last datagram of a burst may be shorter than the others.
    """

    key: Key
    payload: Bytes
    origin: int  # byte offset of the payload in its tensor
    segment_size: int
    tags: Tags
    first_order: Segments
    urgent: bool = False  # the end of its pass carries ASK, for an early verdict
    yields: bool = False  # see `precedes`
    weight: NDArray[np.float64] | None = None  # by segment: the heavier, the more important
    budget: Budget | None = None  # the segments that may be waived; None: none
    permit: Permit | None = None  # the segments that the peer may waive without asking
    state: SenderState = SenderState.SENDING
    round: int = 0
    offer: int = 0  # number of the peer's last FINAL, u8
    followed: bool = False  # an END has followed this pass
    probes: int = 0  # later ENDs, without an answer
    sent: int = 0  # segments of the first pass
    retransmitted: int = 0  # segments sent again
    queued: int | None = None  # class of the queue that it waits in
    tail: tuple[int, int, int] = (0, 0, 0)  # path, packet number and acked at the end of the pass
    ends: dict[tuple[int, int], int] = field(default_factory=dict)  # by path and class: the last
    # packet number of the pass
    path_of: NDArray[np.uint8] = field(init=False)  # path each segment was last sent on
    segments: int = field(init=False)
    order: Segments = field(init=False)  # of the present round
    _runs: list[tuple[int, int]] = field(init=False)  # (where it stops in `order`, class)
    _order_tags: Tags = field(init=False)
    _cursor: int = 0

    def __post_init__(self) -> None:
        self.segments = len(self.first_order)
        self.path_of = np.zeros(self.segments, np.uint8)
        self._begin(self.first_order, self.tags[self.first_order])

    @property
    def remaining(self) -> int:
        """Segments of this round not yet taken."""
        return len(self.order) - self._cursor

    @property
    def traffic_class(self) -> int:
        """Of the next segment, or of the last one sent."""
        return self._runs[0][1]

    @property
    def run(self) -> int:
        """Segments that come next in one class."""
        return self._runs[0][0] - self._cursor

    def precedes(self, other: "TransferSender") -> bool:
        """Whether it is sent before `other`, which was queued earlier in the same class.

        A transfer that yields waits for those of its stream that do not, and for those of later
        operations that do.
        """
        if not other.yields or self.key.stream != other.key.stream:
            return False
        return not self.yields or self.key.operation > other.key.operation

    def take(self, limit: int, path: int) -> tuple[Segments, Tags, int]:
        """Up to `limit` next segments, to go out on `path`; their tags; and how many rows from the
        end of the batch mark the end of the pass. Taking the last segment moves to AWAITING.

        Only the batch that ends the pass is marked: after an earlier mark, a wait for credit would
        look like a loss to the peer.
        """
        stop = self._runs[0][0]
        begin, self._cursor = self._cursor, min(self._cursor + limit, stop)
        taken = self.order[begin : self._cursor]
        tags = self._order_tags[begin : self._cursor]
        self.path_of[taken] = path
        if self.round:
            self.retransmitted += len(taken)
        else:
            self.sent += len(taken)
        if self.remaining:
            if self._cursor == stop:
                del self._runs[0]
            return taken, tags, 0
        self.state = SenderState.AWAITING
        return taken, tags, min(len(taken), ENDING_RUN)

    def on_nack(self, missing: Bits, round_: int) -> bool:
        """The peer lacks `missing` and asks for `round_`. True: there is something to send.

        A repeated or stale NACK is ignored: END probes replace a lost retransmission.
        """
        if self.state is SenderState.DONE or not missing.any() or not self._is_next(round_):
            return False
        self.round = round_
        self._retransmit(self._without_spare(indices(missing)))
        return True

    def _is_next(self, round_: int) -> bool:
        if self.round == MAX_ROUND:  # no higher number: the last one is reused
            return round_ == MAX_ROUND and self.state is SenderState.AWAITING
        return self.round < round_ <= MAX_ROUND

    def _without_spare(self, missing: Segments) -> Segments:
        """The segments to retransmit: `missing` without the lightest ones that the budget and the
        permit cover, or all of `missing` if they cover all."""
        if self.budget is None:
            return missing
        spare = self.budget.spare(missing, self.weight)
        if self.permit is not None:
            spare = self.permit.first(spare)
        needed = np.setdiff1d(missing, spare)
        return needed if len(needed) else missing

    def on_offer(self, number: int) -> bool:
        """The peer offers to waive segments. False: it has made a later offer since. This rank may
        have agreed to that one, and keeps its segments: to send them as well would add them twice.
        """
        if (number - self.offer) & 0xFF >= 0x80:
            return False
        self.offer = number
        return True

    def on_veto(self, segments: Segments) -> None:
        """Send again `segments` that the peer asked to waive.

        In a new round: the peer ignores late arrivals of an old one.
        """
        self.round = min(self.round + 1, MAX_ROUND)
        self._retransmit(segments)

    def restart(self) -> None:
        """Repeat the first pass: the peer was not ready for it."""
        self._begin(self.first_order, self.tags[self.first_order])

    def _retransmit(self, segments: Segments) -> None:
        """Send `segments` again, protected: by class, the heaviest first."""
        classes = self.tags[segments] // DROP_PRECEDENCES
        if self.weight is not None:
            weight = self.weight[segments]
            weight[segments == self.segments - 1] = -1  # it may be short
            by_urgency = np.lexsort((-weight, classes))
        else:
            by_urgency = np.argsort(classes, kind="stable")
        self._begin(segments[by_urgency], classes[by_urgency] * DROP_PRECEDENCES + PROTECTED)

    def _begin(self, order: Segments, tags: Tags) -> None:
        self.order, self._cursor, self.probes, self.followed = order, 0, 0, False
        self.ends.clear()
        self._order_tags, self.state = tags, SenderState.SENDING
        if not np.count_nonzero(tags != tags[0]):
            self._runs = [(len(order), int(tags[0]) // DROP_PRECEDENCES)]
            return
        classes = tags // DROP_PRECEDENCES
        changes = np.flatnonzero(classes[1:] != classes[:-1]).tolist()
        stops = [*(at + 1 for at in changes), len(order)]
        self._runs = [(stop, int(classes[stop - 1])) for stop in stops]

    def permits(self, missing: Bits) -> bool:
        """Whether the peer may waive `missing` without asking."""
        permit, budget = self.permit, self.budget
        if permit is None or budget is None:
            return False
        return permit.covers(missing) and budget.covers(missing)

    def on_done(self) -> bool:
        """The peer needs no more segments. True the first time."""
        first = self.state is not SenderState.DONE
        self.state = SenderState.DONE
        return first
