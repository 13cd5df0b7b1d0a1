"""Receives one transfer and applies the stop rule.

A transfer is complete when every segment is in; or when no exempt segment is missing, the missing
ones are within the sender's budget, its pass has ended (or the deadline passed) and nothing arrives
any more, **and** the sender keeps those as residual: it has permitted beforehand to waive them, or
agrees when asked. So no segment is waived unless its sender keeps it (P3, P4), and none while data
flow (P5).

Segments waived under a permit stay waived. An offer is binding, too: the receiver ignores segments
that arrive after it, because the sender may keep them as residual already and would add them a
second time. Only a veto of the sender re-opens the transfer: it sends in a later round.
"""

from dataclasses import dataclass, field
from enum import IntEnum, auto
from typing import Final

import numpy as np

from dlcpd.core.transfer.budget import Budget
from dlcpd.core.transfer.permit import Permit
from dlcpd.core.wire.bitmap import Bits, Segments
from dlcpd.core.wire.header import MAX_ROUND


class ReceiverState(IntEnum):  # unlike Enum's, its hash is native: states are looked up
    """State of one transfer."""

    RECEIVING = auto()
    OFFERED = auto()  # asked to waive the missing segments; the sender must agree
    COMPLETE = auto()


class ReceiverInput(IntEnum):
    """The events that change the state."""

    FILLED = auto()  # the last missing segment arrived
    MORE = auto()  # some, not all, of the missing arrived
    SETTLED = auto()  # pass ended or deadline, quiet, loss within the budget
    AGREED = auto()  # the sender keeps what is missing
    PERMITTED = auto()  # settled, and the sender has permitted to waive what is missing


TRANSITIONS: Final[dict[tuple[ReceiverState, ReceiverInput], ReceiverState]] = {
    (ReceiverState.RECEIVING, ReceiverInput.FILLED): ReceiverState.COMPLETE,
    (ReceiverState.RECEIVING, ReceiverInput.MORE): ReceiverState.RECEIVING,
    (ReceiverState.RECEIVING, ReceiverInput.SETTLED): ReceiverState.OFFERED,
    (ReceiverState.RECEIVING, ReceiverInput.PERMITTED): ReceiverState.COMPLETE,
    (ReceiverState.OFFERED, ReceiverInput.FILLED): ReceiverState.COMPLETE,
    (
        ReceiverState.OFFERED,
        ReceiverInput.MORE,
    ): ReceiverState.RECEIVING,  # vetoed: the offer is void
    (ReceiverState.OFFERED, ReceiverInput.SETTLED): ReceiverState.OFFERED,  # repeat the offer
    (ReceiverState.OFFERED, ReceiverInput.AGREED): ReceiverState.COMPLETE,
    (ReceiverState.OFFERED, ReceiverInput.PERMITTED): ReceiverState.COMPLETE,  # a late permit
}


class Answer(IntEnum):
    """The answer that the flow sends to the sender."""

    NOTHING = auto()
    NACK = auto()
    FINAL = auto()  # asks
    WAIVED = auto()  # FINAL, which tells


@dataclass(slots=True, eq=False)
class TransferReceiver:
    """Bitmap, round and state of one transfer."""

    segments: int
    traffic_class: int = 0  # of the last segments: retransmissions and verdicts wait in its queue
    budget: Budget | None = None  # what may stay missing; None = exact
    permit: Permit | None = None  # what may be waived without asking
    state: ReceiverState = ReceiverState.RECEIVING
    received: Bits = field(init=False)
    missing: int = field(init=False)
    round: int = 0  # the pass that is awaited
    ended: bool = False  # the end of that pass was seen
    followed: bool = False  # ENDs of that pass came behind its data, on all its paths
    end_at: int = 0  # time stamp of the last END
    offer: int = 0  # number of the present offer, u8 on the wire
    attempts: int = 0  # answers since the sender last sent something for it
    began: float = 0.0  # first arrival, seconds
    holes: int = 0  # in the peer's packet numbers, when it began
    last_arrival: float = 0.0
    waived: bool = False  # complete without the segments that the permit let it waive
    deadline: float = float("inf")  # after it, the receiver does not wait for the end of the pass

    def __post_init__(self) -> None:
        self.received = np.zeros(self.segments, bool)
        self.missing = self.segments

    @property
    def least_round(self) -> int:
        """Segments of earlier rounds are too late."""
        if self.state is ReceiverState.COMPLETE:
            return MAX_ROUND + 1
        return self.round + 1 if self.state is ReceiverState.OFFERED else 0

    def mark(self, segments: Segments) -> int:
        """Mark `segments` as here; returns how many were missing. `on_segments` has to follow."""
        self.received[segments] = True
        missing = self.segments - int(np.count_nonzero(self.received))
        fresh, self.missing = self.missing - missing, missing
        return fresh

    def on_segments(self, fresh: int, *, ending: bool, round_: int, now: float) -> None:
        """Segments of a round came, `fresh` of which were missing before and are marked now."""
        if round_ < self.least_round:
            return
        self._follow(round_)
        if fresh:
            if self.state is ReceiverState.OFFERED:
                self._await(round_)
            self.last_arrival, self.attempts = now, 0
            self._step(ReceiverInput.MORE if self.missing else ReceiverInput.FILLED)
        self.ended |= ending and round_ == self.round

    def fill(self, now: float) -> None:
        """All segments are in."""
        self.received[:] = True
        self.missing, self.last_arrival, self.state = 0, now, ReceiverState.COMPLETE

    def on_end(self, round_: int, sent_at: int) -> bool:
        """END of pass `round_`, sent at `sent_at` of the sender's clock. False: a repetition of the
        last one."""
        if sent_at == self.end_at:
            return False
        self.end_at = sent_at
        self._follow(round_)
        if round_ == self.round:
            self.ended = True
        self.attempts = 0
        return True

    def on_ack(self, offer: int) -> bool:
        """The sender keeps what `offer` named as missing. True: complete now."""
        if self.state is not ReceiverState.OFFERED or offer != self.offer:
            return False
        self._step(ReceiverInput.AGREED)
        return True

    def evaluate(self, now: float, quiet: float) -> Answer:
        """Apply the stop rule; call when `quiet` seconds may have passed without arrivals."""
        if self.state is ReceiverState.COMPLETE or now < self.last_arrival + quiet:
            return Answer.NOTHING
        if self._within_budget() and (self.ended or now >= self.deadline):
            if self.state is ReceiverState.RECEIVING:
                self.offer = (self.offer + 1) & 0xFF
            if self.permit is not None and self.permit.covers(~self.received):
                self.attempts, self.waived = 0, True
                self._step(ReceiverInput.PERMITTED)
                return Answer.WAIVED
            self._step(ReceiverInput.SETTLED)
            self.attempts += 1
            return Answer.FINAL
        if self.ended and self.round < MAX_ROUND:
            self._await(self.round + 1)
        if self.round == 0:
            return Answer.NOTHING  # the first pass is still going on: END will come
        self.attempts += 1
        return Answer.NACK

    def _follow(self, round_: int) -> None:
        """The sender may be ahead: each FINAL that it refuses begins a round, also a repeated one.
        It would ignore a NACK for a round that has begun. An offer stands until a segment comes."""
        if round_ > self.round and self.state is ReceiverState.RECEIVING:
            self._await(round_)

    def _await(self, round_: int) -> None:
        self.round, self.ended, self.followed = round_, False, False

    def _within_budget(self) -> bool:
        return self.budget is not None and self.budget.covers(~self.received)

    def _step(self, event: ReceiverInput) -> None:
        self.state = TRANSITIONS[self.state, event]
