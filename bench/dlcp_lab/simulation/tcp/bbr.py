"""BBR, version 1 (draft-cardwell-iccrg-bbr-congestion-control-00), as Linux has it."""

import math
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from dlcp_lab.simulation.tcp.congestion import INITIAL, Ack

HIGH: Final = 2 / math.log(2)  # gain that doubles the rate each round
CYCLE: Final = (1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
ROUNDS: Final = 10  # of the filter of the bandwidth
GROWTH: Final = 1.25
FULL: Final = 3  # rounds with less growth: the pipe is full
FRESH: Final = 10.0  # seconds after which the least round trip is measured again
PROBE: Final = 0.2  # seconds that this takes
LEAST: Final = 4.0  # segments
SPARE: Final = 6.0  # segments beyond two bandwidth-delay products, for aggregated acknowledgements


class BbrState(Enum):
    """Of a connection."""

    STARTUP = "startup"
    DRAIN = "drain"
    PROBE_BW = "probe bandwidth"
    PROBE_RTT = "probe round trip"


@dataclass(slots=True)
class Bbr:
    """Pace and window of one connection. A loss alone changes neither."""

    window: float = INITIAL
    pace: float = math.inf
    state: BbrState = BbrState.STARTUP
    _rates: deque[tuple[int, float]] = field(default_factory=deque)  # by round, largest first
    _round: int = 0
    _round_ends: int = 0  # segments delivered
    _full: float = 0.0  # segments per second, the largest rate of the startup
    _without_growth: int = 0  # rounds
    _turn: int = 2  # of CYCLE
    _turned: float = 0.0  # seconds
    _least: float = math.inf  # round trip
    _least_at: float = 0.0
    _probe_ends: float = 0.0  # 0: the window is still larger than LEAST

    @property
    def rate(self) -> float:
        """Segments per second of the bottleneck; 0: unknown."""
        return self._rates[0][1] if self._rates else 0.0

    def on_ack(self, ack: Ack) -> None:
        """Take the sample in."""
        starts = ack.delivered_before >= self._round_ends
        if starts:
            self._round_ends = ack.delivered
            self._round += 1
        self._sample(ack)
        expired = ack.now > self._least_at + FRESH
        if ack.round_trip <= self._least or expired:
            self._least, self._least_at = ack.round_trip, ack.now
        if expired and self.state is not BbrState.PROBE_RTT:
            self.state, self._probe_ends = BbrState.PROBE_RTT, 0.0
        self._advance(ack, starts)
        gain = self._gain()
        if self.rate:
            self.pace = gain * self.rate
        self._resize(ack)

    def on_loss(self, now: float) -> None:
        """The model of the path does not depend on losses."""

    def on_timeout(self, now: float) -> None:
        """Send segment by segment until one is acknowledged."""
        del now
        self.window = 1.0

    def on_idle(self, now: float) -> None:
        """The model of the path holds."""

    def _sample(self, ack: Ack) -> None:
        if ack.application_limited and ack.rate < self.rate:
            return
        while self._rates and self._rates[-1][1] <= ack.rate:
            self._rates.pop()
        self._rates.append((self._round, ack.rate))
        while self._rates[0][0] < self._round - ROUNDS:
            self._rates.popleft()

    def _advance(self, ack: Ack, starts: bool) -> None:
        """Go on to the next phase, or turn of the cycle, if it is time."""
        product = self.rate * self._least
        match self.state:
            case BbrState.STARTUP:
                if starts and not ack.application_limited:
                    self._watch_growth()
            case BbrState.DRAIN:
                if ack.in_flight <= product:
                    self.state, self._turned = BbrState.PROBE_BW, ack.now
            case BbrState.PROBE_BW:
                elapsed = ack.now - self._turned > self._least
                high = CYCLE[self._turn] > 1 and ack.in_flight < CYCLE[self._turn] * product
                drained = CYCLE[self._turn] < 1 and ack.in_flight <= product
                if (elapsed and not high) or drained:
                    self._turn, self._turned = (self._turn + 1) % len(CYCLE), ack.now
            case BbrState.PROBE_RTT:
                self._probe(ack)

    def _watch_growth(self) -> None:
        if self.rate >= self._full * GROWTH:
            self._full, self._without_growth = self.rate, 0
            return
        self._without_growth += 1
        if self._without_growth >= FULL:
            self.state = BbrState.DRAIN

    def _probe(self, ack: Ack) -> None:
        if not self._probe_ends:
            if ack.in_flight <= LEAST:
                self._probe_ends = ack.now + PROBE
        elif ack.now > self._probe_ends:
            self._least_at, self._turned = ack.now, ack.now
            self.state = BbrState.PROBE_BW if self._without_growth >= FULL else BbrState.STARTUP

    def _gain(self) -> float:
        match self.state:
            case BbrState.STARTUP:
                return HIGH
            case BbrState.DRAIN:
                return 1 / HIGH
            case BbrState.PROBE_BW:
                return CYCLE[self._turn]
            case BbrState.PROBE_RTT:
                return 1.0

    def _resize(self, ack: Ack) -> None:
        starts = self.state in (BbrState.STARTUP, BbrState.DRAIN)
        target = (HIGH if starts else 2.0) * self.rate * self._least + SPARE
        if self._without_growth >= FULL:
            self.window = min(self.window + ack.acked, target)
        elif self.window < target or ack.delivered < INITIAL:
            self.window += ack.acked
        self.window = max(self.window, LEAST)
        if self.state is BbrState.PROBE_RTT:
            self.window = LEAST
