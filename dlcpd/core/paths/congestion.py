"""Congestion window and pace of one packet number space.

Additive increase; decrease by queueing delay and by the fraction of CE marks, whichever
asks for more. The delay is that of the fabric alone, one way: from one host's send call to
the other kernel's time stamp, so that neither a busy CPU (as in Swift, SIGCOMM 2020) nor
the answer's own queue is taken for a full one. Marks count as in DCTCP (RFC 8257 section
3.3). Loss alone does not close the window unless it is heavy: bounded loss is what this
transport is for, and a full drop-tail queue shows in the delay first.
"""

from dataclasses import dataclass
from typing import Final

INITIAL_WINDOW: Final = 64  # packets, ~90 KB: one GSO burst and a half
MIN_WINDOW: Final = 16  # packets, ~22 KB: still a burst worth a system call
MIN_SHARE: Final = 8  # packets of either, however many routes share them: 40 Mb/s times 2 ms
MAX_WINDOW: Final = 32768  # packets, ~46 MB: above any credit a receiver gives
TARGET_DELAY: Final = 0.8e-3  # seconds of queue: 100 KB at 1 Gb/s, under half a 256 KB port buffer
MAX_TARGET: Final = 1.6e-3  # seconds, where hosts take longer than that to answer
MIN_QUEUE: Final = 16  # packets of queue to aim at on slow links, where the targets above are less
MOST_QUEUE: Final = 6e-3  # seconds that MIN_QUEUE may take at most: flows share a queue of 10 ms
INCREASE: Final = 16  # packets per round trip
HEAVY_LOSS: Final = 0.15  # fraction per round trip, beyond any bound that trains well
BASE_SPAN: Final = 10.0  # seconds; the base delay is the least of this span and the one before:
# operations begin on empty queues now and then, and clocks drift by less than a target
MARK_GAIN: Final = 1 / 16  # weight of a new round in the marked fraction (RFC 8257 section 4.2)
PACE_GAIN: Final = 1.25  # pace above window / round trip, so that the window limits, not the pace
START_GAIN: Final = 2.0  # likewise while the window doubles every round trip
BURST_TIME: Final = 0.3e-3  # seconds of pace that leave at once: what stands in no queue for long
MIN_BURST: Final = 16  # packets; fewer cost more in system calls than they spare a queue
SLOW_BURST: Final = 2e-3  # seconds of pace; a burst of more on a slow link would be its own queue
LEAST_BURST: Final = 8  # packets; 2 took 12 % longer where twelve flows shared four slow links
UNPACED: Final = 1440  # packets; a pace that lets a largest batch out at once is none
MOST_DELAY: Final = 0.2  # seconds; a pace below 80 packets per second would be none
LEAST_DELAY: Final = 50e-6  # seconds; below it, round trips measure clocks


@dataclass(frozen=True, slots=True)
class Feedback:
    """What one CREDIT tells of a space."""

    delay: float | None  # seconds through the fabric, from any zero; None: it measured none
    round_trip: float  # seconds there and back, and what both hosts take to answer: smoothed,
    # or the last one if it was shorter, so that a class that starved goes on at once
    acked: int  # largest packet number that arrived
    sent: int  # largest that was sent
    arrived: int = 0  # packets since the last one
    lost: int = 0
    marked: int = 0  # of those that arrived


@dataclass(slots=True)
class CongestionWindow:
    """Feed it one `on_credit` per CREDIT; read `window`, and before sending `allowance`.

    `share` is the part of what one flow may begin with and grow by, when its paths are many.
    """

    share: float = 1.0
    enabled: bool = True  # False: always open, whatever the fabric says
    window: float = 0.0  # packets
    slow_start: bool = True
    base_delay: float = float("inf")  # seconds, smallest of late
    queue_delay: float = 0.0  # seconds, of the last round
    round_trip: float = 0.0  # seconds; 0 = not measured, and no pace
    marked: float = 0.0  # fraction of packets, smoothed
    _target: float = TARGET_DELAY
    _base: float = float("inf")  # seconds, smallest of this span
    _base_since: float = 0.0
    _round_end: int = 0  # packet number that ends the present round trip
    _round_delay: float = float("inf")  # smallest in this round: a standing queue, not a spike
    _round_arrived: int = 0
    _round_lost: int = 0
    _round_marked: int = 0
    _tokens: float = 0.0  # packets that may leave
    _tokens_at: float = 0.0

    def __post_init__(self) -> None:
        start = max(INITIAL_WINDOW * self.share, MIN_SHARE) if self.enabled else MAX_WINDOW
        self.window = self.window or start

    # --- pace ------------------------------------------------------------------------

    @property
    def pace(self) -> float:
        """Packets per second at which the window goes out."""
        gain = START_GAIN if self.slow_start else PACE_GAIN
        return gain * self.window / min(max(self.round_trip, LEAST_DELAY), MOST_DELAY)

    @property
    def worthwhile(self) -> int:
        """Packets that the pace saves up before it lets any out."""
        pace = self.pace
        return UNPACED if pace >= UNPACED / BURST_TIME else _worthwhile(pace)

    def allowance(self, now: float) -> int:
        """Packets that the pace lets out now: a batch worth a call, or 0."""
        pace = self.pace
        if pace >= UNPACED / BURST_TIME or not self.enabled:
            return UNPACED
        worthwhile = _worthwhile(pace)
        most = max(pace * BURST_TIME, worthwhile)
        self._tokens = min(self._tokens + (now - self._tokens_at) * pace, most)
        self._tokens_at = now
        return int(self._tokens) if self._tokens >= worthwhile else 0

    def spend(self, packets: int) -> None:
        """`packets` went out."""
        self._tokens -= packets

    def ready_at(self) -> float:
        """When `allowance`, which gave 0, will give something."""
        pace = self.pace
        return self._tokens_at + (_worthwhile(pace) - self._tokens) / pace

    # --- window -----------------------------------------------------------------------

    def on_credit(self, now: float, news: Feedback) -> None:
        """Take in what a CREDIT tells."""
        if news.delay is not None:
            if now - self._base_since > BASE_SPAN:
                self.base_delay, self._base, self._base_since = self._base, float("inf"), now
            self._base = min(self._base, news.delay)
            self.base_delay = min(self.base_delay, self._base)
            self._round_delay = min(self._round_delay, news.delay)
            self.round_trip = news.round_trip
        self._round_arrived += news.arrived
        self._round_lost += news.lost
        self._round_marked += news.marked
        if news.acked >= self._round_end and self._round_delay < float("inf"):
            self._end_round(limited=news.sent - self._round_end >= self.window / 2)
            self._round_end = news.sent

    def _end_round(self, *, limited: bool) -> None:
        self.queue_delay = self._round_delay - self.base_delay
        # a queue shorter than the hosts' own delay runs dry while they are busy
        own_delay = self.round_trip - self.queue_delay
        burst = MIN_QUEUE * self.round_trip / self.window  # seconds that the link takes for one
        self._target = max(min(max(own_delay, TARGET_DELAY), MAX_TARGET), min(burst, MOST_QUEUE))
        fraction = self._round_marked / self._round_arrived if self._round_arrived else 0.0
        self.marked += MARK_GAIN * (fraction - self.marked)
        factor = min(self._by_delay(), self._by_marks(), self._by_loss())
        if not self.enabled:
            pass
        elif factor < 1:
            self.slow_start = False
            self.window = max(self.window * factor, MIN_WINDOW * self.share, MIN_SHARE)
        elif limited:
            self.window = min(self._grown(), MAX_WINDOW)
        self._round_delay = float("inf")
        self._round_arrived = self._round_lost = self._round_marked = 0

    def _by_delay(self) -> float:
        if self.queue_delay <= self._target:
            return 1.0
        return 1 - (self.queue_delay - self._target) / self.queue_delay / 2

    def _by_marks(self) -> float:
        if not self._round_marked:
            return 1.0
        if self.slow_start:  # the first marks: no history yet, so take the round for one
            self.marked = max(self.marked, self._round_marked / self._round_arrived)
        return 1 - self.marked / 2

    def _by_loss(self) -> float:
        total = self._round_arrived + self._round_lost
        loss = self._round_lost / total if total else 0.0
        return 1 - loss / 2 if loss > HEAVY_LOSS else 1.0

    def _grown(self) -> float:
        if self.slow_start and self.queue_delay < self._target / 2:
            return self.window * 2
        self.slow_start = False
        return self.window + max(INCREASE * self.share, 1)


def _worthwhile(pace: float) -> int:
    least = min(max(pace * SLOW_BURST, LEAST_BURST), MIN_BURST)
    return int(max(pace * BURST_TIME / 2, least))
