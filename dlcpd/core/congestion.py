"""Congestion window of one path: additive increase, decrease by queueing delay.

The delay is that of the fabric alone: the receiver subtracts the time a datagram
waited in its host (as Swift does, SIGCOMM 2020), so a busy CPU is not taken for a full
queue. Loss alone does not close the window unless it is heavy: bounded loss is what this
transport is for, and a full drop-tail queue shows in the delay first.
"""

from dataclasses import dataclass
from typing import Final

INITIAL_WINDOW: Final = 64  # packets, ~90 KB: one GSO burst and a half
MIN_WINDOW: Final = 16  # packets, ~22 KB: still a burst worth a system call
MAX_WINDOW: Final = 32768  # packets, ~46 MB: above any credit a receiver gives
TARGET_DELAY: Final = 0.8e-3  # seconds of queue: 100 KB at 1 Gb/s, under half a 256 KB port buffer
INCREASE: Final = 16  # packets per round trip
HEAVY_LOSS: Final = 0.15  # fraction per round trip, beyond any bound that trains well
STALE_MINIMUM: Final = 10.0  # seconds after which the base delay is measured anew


@dataclass(slots=True)
class DelayWindow:
    """Feed it one `on_credit` per CREDIT; read `window`."""

    window: float = INITIAL_WINDOW  # packets
    slow_start: bool = True
    base_delay: float = float("inf")  # seconds, smallest seen
    queue_delay: float = 0.0  # seconds, of the last round, for reports
    _base_at: float = 0.0
    _round_end: int = 0  # packet number that ends the present round trip
    _round_delay: float = float("inf")  # smallest in this round: a standing queue, not a spike
    _round_arrived: int = 0
    _round_lost: int = 0

    def on_credit(
        self, now: float, *, delay: float | None, acked: int, sent: int, arrived: int, lost: int
    ) -> None:
        """`delay` seconds through the fabric and back, None when this credit measured none;
        `acked` and `sent` packet numbers; `arrived` and `lost` packets since the last call."""
        if delay is not None:
            if delay < self.base_delay or now - self._base_at > STALE_MINIMUM:
                self.base_delay, self._base_at = delay, now
            self._round_delay = min(self._round_delay, delay)
        self._round_arrived += arrived
        self._round_lost += lost
        if acked >= self._round_end and self._round_delay < float("inf"):
            self._end_round(limited=sent - self._round_end >= self.window / 2)
            self._round_end = sent

    def _end_round(self, *, limited: bool) -> None:
        self.queue_delay = self._round_delay - self.base_delay
        total = self._round_arrived + self._round_lost
        loss = self._round_lost / total if total else 0.0
        if self.queue_delay > TARGET_DELAY:
            excess = (self.queue_delay - TARGET_DELAY) / self.queue_delay
            self._shrink(1 - excess / 2)
        elif loss > HEAVY_LOSS:
            self._shrink(1 - loss / 2)
        elif limited:
            self.window = min(self._grown(), MAX_WINDOW)
        self._round_delay = float("inf")
        self._round_arrived = self._round_lost = 0

    def _grown(self) -> float:
        if self.slow_start and self.queue_delay < TARGET_DELAY / 2:
            return self.window * 2
        self.slow_start = False
        return self.window + INCREASE

    def _shrink(self, factor: float) -> None:
        self.slow_start = False
        self.window = max(self.window * factor, MIN_WINDOW)
