"""Pace and window of one packet number space.

The pace follows the delivery rate (`delivery`), a little above it while the queue is below its
target and below it otherwise, so that a link stays busy on a short queue. The window is a cap, the
delivery rate times the minimum RTT plus some queue: it bounds the damage when no answers come.
Before anything is measured, the window doubles every round trip. The delay is that of the fabric
alone, one way: from one host's send call to the other kernel's time stamp, so that neither a busy
CPU (as in Swift, SIGCOMM 2020) nor the answer's own queue counts as congestion. Marks slow down as
in DCTCP (RFC 8257 section 3.3). Loss alone does not, unless it is heavy: bounded loss is what this
transport is for, and a full drop-tail queue shows in the delay first.
"""

from dataclasses import dataclass, field
from typing import Final

from dlcpd.core.paths.delivery import DeliveryRate

INITIAL_WINDOW: Final = 64  # packets, ~90 KB: one GSO burst and a half
MIN_WINDOW: Final = 16  # packets, ~22 KB: still a burst worth a system call
MIN_SHARE: Final = 8  # packets, least part of either for one of many routes: 40 Mb/s times 2 ms
MAX_WINDOW: Final = 32768  # packets, ~46 MB: above any credit a receiver gives
TARGET_DELAY: Final = 1e-3  # seconds of queue: 125 KB at 1 Gb/s, half of a small port buffer
TARGET_QUEUE: Final = 20  # packets, if they take longer than TARGET_DELAY: a host may pause 1 ms
MOST_QUEUE: Final = 90  # packets, if they take less than TARGET_DELAY: 125 KB of 1,408 B
LEAST_TARGET: Final = 50e-6  # seconds; the time stamps of two kernels resolve no shorter queue
FINEST_TIMER: Final = 1e-4  # seconds; an engine wakes up no more precisely
MOST_TARGET: Final = 10e-3  # seconds, largest target: 128 KB at 100 Mb/s
GAIN: Final = 0.25  # of the pace, per target by which the queue is off it; as large as BBR's probes
NO_QUEUE: Final = 0.25  # targets; below it the link did not limit the round
MOST_EXCESS: Final = 2.0  # targets above the target; a longer queue slows down no further
ROOM: Final = 3.0  # targets of queue that the window allows: one each way, and busy hosts
HEAVY_LOSS: Final = 0.15  # fraction per round trip, beyond any bound that trains well
BASE_SPAN: Final = 10.0  # seconds; the base delay is the minimum of this span and the one before:
# operations begin on empty queues now and then, and clocks drift by less than a target. A flow that
# was idle for longer begins anew (RFC 2861 asks that of TCP after one timeout)
MARK_GAIN: Final = 1 / 16  # weight of a new round in the marked fraction (RFC 8257 section 4.2)
START_GAIN: Final = 2.0  # pace above window / round trip while the window doubles
LEAST_BURST: Final = 8  # packets; 2 took 12 % longer where twelve flows shared four slow links
GSO_BURST: Final = 45  # packets; always worth a call, but not a timer
UNPACED: Final = 1440  # packets; a pace that lets the largest batch out at once counts as none
LEAST_ROUND_TRIP: Final = 50e-6  # seconds; shorter ones measure the clocks
LONGEST_ROUND_TRIP: Final = 0.2  # seconds; keeps the pace above 80 packets per second
ROUNDING: Final = 1e-6  # packets; so that a timer set for a whole burst finds it


def target_queue(rate: float, *, port: bool = True) -> float:
    """Seconds of queue to aim at on a path that delivers `rate` packets per second. `port`: it ends
    in the port of a switch, whose memory is short."""
    short = max(MOST_QUEUE / rate, LEAST_TARGET) if port else TARGET_DELAY
    return min(max(min(TARGET_DELAY, short), TARGET_QUEUE / rate), MOST_TARGET)


@dataclass
class Feedback:
    """The report of one CREDIT on a space."""

    delay: float | None  # seconds through the fabric, of arbitrary origin; None: not measured
    round_trip: float  # seconds, with the time that both hosts take to answer: smoothed, or
    # the last one if it was shorter, so that a class that starved goes on at once
    answered: float  # seconds, the last round trip
    arrived_at: float  # seconds of the peer's clock, when the newest packet came
    acked: int  # largest packet number that arrived
    sent: int  # largest that was sent
    arrived: int = 0  # packets since the last CREDIT
    lost: int = 0
    marked: int = 0  # of those that arrived


@dataclass
class Round:
    """The measurements of one round trip."""

    delay: float = float("inf")  # seconds, the smallest: a standing queue, not a spike
    arrived: int = 0
    lost: int = 0
    marked: int = 0

    @property
    def marked_part(self) -> float:
        """Fraction of the packets that arrived."""
        return self.marked / self.arrived if self.arrived else 0.0

    @property
    def lost_part(self) -> float:
        """Fraction of the packets that were sent."""
        total = self.arrived + self.lost
        return self.lost / total if total else 0.0


@dataclass
class Least:
    """The minimum over this span of time and the one before."""

    value: float = float("inf")
    _of_span: float = float("inf")

    def see(self, value: float) -> None:
        """Take in one value."""
        self._of_span = min(self._of_span, value)
        self.value = min(self.value, value)

    def next_span(self) -> None:
        """Begin a span; values from before the last one no longer count."""
        self.value, self._of_span = self._of_span, float("inf")


@dataclass
class CongestionControl:
    """Feed it one `on_credit` per CREDIT; read `window`, and before sending `allowance`.

    `share`: this path's part of the initial and the minimum window of a flow with many paths.
    """

    share: float = 1.0
    enabled: bool = True  # False: always open, in any state of the fabric
    port: bool = True  # False: the path does not leave this host
    window: float = 0.0  # packets
    slow_start: bool = True
    queue_delay: float = 0.0  # seconds, of the last round
    target: float = TARGET_DELAY  # seconds that the queue should take
    round_trip: float = LEAST_ROUND_TRIP  # seconds; before it is measured, there is no pace
    gain: float = 1 + GAIN  # of the pace above the rate
    rate: float = 0.0  # packets per second that the path delivers; 0 = not known
    pace: float = 0.0  # packets per second that may go out
    worthwhile: int = UNPACED  # packets that the pace saves up before it lets any out
    marked: float = 0.0  # fraction of packets, smoothed
    idle: bool = False  # there is nothing to send
    delivery: DeliveryRate = field(default_factory=DeliveryRate)
    _base: Least = field(default_factory=Least)  # seconds through the fabric
    _answer: Least = field(default_factory=Least)  # seconds, the minimum RTT
    _span_since: float = 0.0
    _round: Round = field(default_factory=Round)
    _round_end: int = 0  # packet number that ends the present round trip
    _dry: bool = False  # the sender was application-limited in a part of it
    _spare: bool = False  # the pace would have let more out in it
    _tokens: float = 0.0  # packets that may leave
    _tokens_at: float = 0.0

    def __post_init__(self) -> None:
        self.window = self.window or self._first_window
        self._set_pace()

    @property
    def _first_window(self) -> float:
        return max(INITIAL_WINDOW * self.share, MIN_SHARE) if self.enabled else MAX_WINDOW

    @property
    def base_delay(self) -> float:
        """Seconds through the fabric while no queue stands."""
        return self._base.value

    @property
    def quickest(self) -> float:
        """Seconds, the minimum RTT of the last one or two spans; inf: there was no sample."""
        return self._answer.value

    # --- pace ------------------------------------------------------------------------

    def _set_pace(self) -> None:
        """Set the pace from the present estimates. Bursts are half the target queue: a longer one
        is a queue of its own, a shorter one costs more in calls. Where a timer is too coarse for
        that, they are as long as its grain, and the window is the limit that fits into a burst."""
        self.pace = self.gain * self.rate
        if self.slow_start:
            rate = self.window / min(self.round_trip, LONGEST_ROUND_TRIP)
            self.pace, self.target = START_GAIN * rate, target_queue(rate, port=self.port)
        burst = self.pace * max(self.target / 2, FINEST_TIMER)
        unpaced = burst >= min(self.window, UNPACED / 2)
        self.worthwhile = UNPACED if unpaced else max(int(burst), LEAST_BURST)

    def allowance(self, now: float) -> int:
        """Packets that the pace lets out now: a batch worth a call, or 0."""
        if now - self._tokens_at > BASE_SPAN:
            self._begin_anew()
        saved = now - self._tokens_at
        self._tokens_at = now
        if saved > self.round_trip > self.target / GAIN and self.gain < 1 and not self.slow_start:
            self.gain = 1.0  # the queue of the last round is gone
            self._set_pace()
        if self.worthwhile >= UNPACED or not self.enabled:
            self._spare = True
            return UNPACED
        most = max(self.pace * self.target, self.worthwhile)
        self._tokens += saved * self.pace
        if self._tokens >= most:
            self._tokens, self._spare = most, True
        ready = self._tokens + ROUNDING
        least = min(self.worthwhile, GSO_BURST) if self.port else self.worthwhile
        return int(ready) if ready >= least else 0

    def spend(self, packets: int) -> None:
        """`packets` went out."""
        self.idle = False
        self._tokens = max(self._tokens - packets, 0.0)  # packets sent without a pace are not owed

    def ready_at(self) -> float:
        """When `allowance`, which returned 0, will be positive."""
        return self._tokens_at + (self.worthwhile - self._tokens) / self.pace

    def ran_dry(self) -> None:
        """The sender is application-limited: the path may deliver more than what arrives now."""
        self.idle = self._dry = True

    def _begin_anew(self) -> None:
        """Start over after a long idle time: the estimates are out of date."""
        self.slow_start = True
        self.window = self._first_window
        self.delivery.forget()
        self._set_pace()

    # --- window -----------------------------------------------------------------------

    def on_credit(self, now: float, news: Feedback) -> None:
        """Take in the report of a CREDIT."""
        this = self._round
        if news.delay is not None:
            self._measure(now, news.delay, news)
            this.delay = min(this.delay, news.delay)
        this.arrived += news.arrived
        this.lost += news.lost
        this.marked += news.marked
        self.delivery.on_arrivals(news.arrived)
        if news.acked >= self._round_end and this.delay < float("inf"):
            at = None if news.delay is None else news.arrived_at
            self.queue_delay = this.delay - self.base_delay
            queue = self.queue_delay / self.target
            empty = queue < NO_QUEUE and not this.lost and not this.marked
            used = news.sent - self._round_end >= self.window / 2
            granted = self._spare and not used  # neither pace nor window was the limit: the credit
            dry = self._dry or granted
            self.delivery.end_round(at, dry=dry, empty=empty, standing=queue > 1)
            if self.enabled:
                self._end_round(this, used=used, granted=granted)
            self._round, self._round_end = Round(), news.sent
            self._dry, self._spare = self.idle, False
        if self.enabled:
            self._set_pace()

    def _measure(self, now: float, delay: float, news: Feedback) -> None:
        if now - self._span_since > BASE_SPAN:
            self._span_since = now
            self._base.next_span()
            self._answer.next_span()
        self._base.see(delay)
        self._answer.see(news.answered)
        self.round_trip = max(news.round_trip, LEAST_ROUND_TRIP)

    def _end_round(self, this: Round, *, used: bool, granted: bool) -> None:
        if self.slow_start:
            self._start(this, used=used, granted=granted)
        self.marked += MARK_GAIN * (this.marked_part - self.marked)
        if not self.slow_start:
            self._follow(this)

    def _start(self, this: Round, *, used: bool, granted: bool) -> None:
        """The window doubles, where it was used, until there is a queue or a sign of one. Rounds in
        which the peer's credit was the limit say too little of the rate."""
        heavy = this.lost_part > HEAVY_LOSS and this.lost >= MIN_SHARE  # 3 of 16 may be by chance
        if self.queue_delay > self.target / 2 or this.marked or heavy:
            self.slow_start = False
            self.marked = max(self.marked, this.marked_part)  # the first round is all the history
            if granted or not self.delivery.known:
                self.delivery.assume(self.window / self.round_trip)
        elif used:
            self.window = min(self.window * 2, MAX_WINDOW)

    def _follow(self, this: Round) -> None:
        """Set the pace by the rate and the queue, and a window that leaves it room."""
        self.rate = max(self.delivery.rate, MIN_SHARE / self.round_trip)
        self.target = target_queue(self.rate, port=self.port)
        excess = (self.queue_delay - self.target) / self.target
        self.gain = 1 - GAIN * min(excess, MOST_EXCESS)  # for an empty queue: 1 + GAIN
        if excess > 0 and self._answer.value * GAIN > self.target:  # a round drains it, and no more
            self.gain = 1 - min(GAIN * MOST_EXCESS, excess * self.target / self._answer.value)
        if this.marked:
            self.gain *= 1 - self.marked / 2
        if this.lost_part > HEAVY_LOSS:
            self.gain *= 1 - this.lost_part / 2
        answer = self._answer.value
        room = self.rate * (answer + ROOM * self.target)
        if self.queue_delay < NO_QUEUE * self.target:  # on a long path, let the rate grow
            room = max(room, self.rate * (answer * self.gain + self.target))
        self.window = min(max(room, MIN_WINDOW * self.share, MIN_SHARE), MAX_WINDOW)
