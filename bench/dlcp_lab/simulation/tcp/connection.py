"""A TCP connection in virtual time: segments, acknowledgements and retransmissions, in whole
segments. Loss detection is RACK-TLP (RFC 8985) with selective acknowledgements of all that came.
"""

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from dlcp_lab.simulation.calendar import Calendar
from dlcp_lab.simulation.fabric import SimFabric
from dlcp_lab.simulation.tcp.congestion import Ack, Congestion
from dlcp_lab.simulation.tcp.receiver import ACK_SIZE, Receiver
from dlcp_lab.simulation.train import Train

MSS: Final = 1448  # bytes of a segment
SEGMENT_SIZE: Final = ACK_SIZE + MSS  # bytes on the wire
REORDERED: Final = 3  # segments sent later that arrived: then one is lost
LEAST_TIMEOUT: Final = 0.2  # seconds, of Linux
MOST_TIMEOUT: Final = 120.0
PROBE_MARGIN: Final = 0.002  # seconds, beyond two round trips
BURST_TIME: Final = 0.001  # seconds of the pace that leave at once
MOST_BURST: Final = 16  # segments
BUFFER: Final = 4 << 20  # bytes in flight at most: the send buffer


@dataclass(slots=True)
class _Sent:
    """The last transmission of a segment that is in flight."""

    number: int
    order: int  # of all transmissions
    at: float  # seconds
    again: bool
    delivered: int  # segments so far, then
    delivered_at: float
    sent_before: float  # when the segment left that was the last to be delivered then
    application_limited: bool


@dataclass(eq=False, slots=True, repr=False)
class Connection:
    """The sender of one direction, from host to host."""

    calendar: Calendar
    fabric: SimFabric
    source: int
    target: int
    path: int  # number of the connection
    congestion: Congestion
    most: int  # segments of a train
    receiver: Receiver
    written: int = 0  # segments
    retransmitted: int = 0
    _next: int = 0  # segment to send for the first time
    _order: int = 0
    _flying: dict[int, _Sent] = field(default_factory=dict)  # in the order of transmission
    _lost: list[int] = field(default_factory=list)  # to retransmit, in order
    _delivered: int = 0
    _delivered_at: float = 0.0
    _sent_before: float = 0.0  # when the newest segment left that was delivered
    _newest: int = -1  # order of the latest transmission that arrived
    _recovery: int = -1  # order of the transmission whose arrival ends it; -1: none
    _acked: int = 0  # entries of the receiver's log that acknowledgements reported
    _smoothed: float = 0.0  # round trip, seconds
    _variance: float = 0.0
    _least: float = math.inf
    _timeouts: int = 0  # in a row
    _probed: bool = False
    _limited_until: int = 0  # segments delivered, of an application-limited flight
    _may_send_at: float = 0.0  # by the pace
    _timer: float = math.inf
    _pacing: bool = False
    _last_sent: float = 0.0

    # --- the sender -------------------------------------------------------------------

    def write(self, size: int) -> None:
        """Send `size` bytes, which begin with a segment of their own."""
        now = self.calendar.now
        if not self._flying and now - self._last_sent > self._timeout and self._order:
            self.congestion.on_idle(now)
        self.written += segments(size)
        self._send()

    def on_ack(self, count: int) -> None:
        """The target had received `count` segments, repeated ones included."""
        if count <= self._acked:
            return
        reported = dict.fromkeys(self.receiver.log[self._acked : count])
        news = [number for number in reported if number in self._flying]
        self._lost = [number for number in self._lost if number not in reported]
        self._acked = count
        if news:
            self._take(news)
        self._send()

    def _take(self, news: list[int]) -> None:
        now, full = self.calendar.now, self._window_full
        newest = max((self._flying.pop(number) for number in news), key=lambda sent: sent.order)
        self._delivered += len(news)
        self._delivered_at = now
        self._newest = max(self._newest, newest.order)
        round_trip = now - newest.at
        if not newest.again:
            self._measure(round_trip)
        elapsed = max(now - newest.delivered_at, newest.at - newest.sent_before, self._least)
        self._sent_before = newest.at
        self._timeouts, self._probed = 0, False
        if self._newest >= self._recovery:
            self._recovery = -1
        self._find_lost()
        self.congestion.on_ack(
            Ack(
                now,
                len(news),
                round_trip,
                self._least,
                len(self._flying),
                full,
                self._recovery >= 0,
                self._delivered,
                newest.delivered,
                (self._delivered - newest.delivered) / elapsed,
                newest.application_limited,
            )
        )
        self._arm()

    def _measure(self, round_trip: float) -> None:
        """RFC 6298."""
        self._least = min(self._least, round_trip)
        if not self._smoothed:
            self._smoothed, self._variance = round_trip, round_trip / 2
            return
        self._variance += (abs(round_trip - self._smoothed) - self._variance) / 4
        self._smoothed += (round_trip - self._smoothed) / 8

    def _find_lost(self, *, late: bool = False) -> None:
        """Segments that later ones have overtaken. `late`: the time for reordering has passed."""
        least = 1 if late else REORDERED
        lost = []
        for sent in self._flying.values():
            if self._newest - sent.order < least:
                break
            lost.append(sent.number)
        self._lose(lost)

    def _lose(self, lost: list[int]) -> None:
        if not lost:
            return
        for number in lost:
            del self._flying[number]
        self._lost = sorted([*self._lost, *lost])
        if self._recovery < 0:
            self._recovery = self._order
            self.congestion.on_loss(self.calendar.now)

    @property
    def _window_full(self) -> bool:
        return len(self._flying) + 1 > min(self.congestion.window, BUFFER // MSS)

    def _send(self, _: object = None) -> None:
        """Send what the window and the pace allow."""
        now, numbers = self.calendar.now, list[int]()
        pace = self.congestion.pace
        burst = self.most if pace == math.inf else int(min(max(pace * BURST_TIME, 2), MOST_BURST))
        while (self._lost or self._next < self.written) and not self._window_full:
            if self._may_send_at > now + 1e-12:
                self._wait_for_pace()
                break
            numbers.append(self._record(now))
            if len(numbers) == burst:
                self._leave(numbers)
                numbers = []
        if numbers:
            self._leave(numbers)
        if self._next == self.written and not self._lost and not self._window_full:
            self._limited_until = self._delivered + len(self._flying)
        if self._timer == math.inf:
            self._arm()

    def _record(self, now: float) -> int:
        """The next segment to send, now in flight."""
        again = bool(self._lost)
        number = self._lost.pop(0) if again else self._next
        self._next += not again
        self.retransmitted += again
        if not self._flying:
            self._delivered_at = self._sent_before = now
        limited = self._delivered < self._limited_until
        self._flying[number] = _Sent(
            number,
            self._order,
            now,
            again,
            self._delivered,
            self._delivered_at,
            self._sent_before,
            limited,
        )
        self._order += 1
        return number

    def _leave(self, numbers: list[int]) -> None:
        """Send segments; the pace says when the next may follow: at once, if it is infinite."""
        self._depart(numbers)
        pace = self.congestion.pace
        self._may_send_at = max(self._may_send_at, self.calendar.now) + len(numbers) / pace

    def _depart(self, numbers: list[int]) -> None:
        self._last_sent = self.calendar.now
        for at in range(0, len(numbers), self.most):
            self._carry(numbers[at : at + self.most])

    def _carry(self, numbers: list[int]) -> None:
        rows = np.array(numbers, np.int64).view(np.uint8).reshape(len(numbers), 8)
        self.fabric.send(
            Train(
                self.source,
                self.target,
                self.path,
                len(numbers),
                SEGMENT_SIZE,
                np.zeros(len(numbers), np.uint8),
                rows,
                np.full(len(numbers), 8, np.intp),
            )
        )

    # --- timers -----------------------------------------------------------------------

    @property
    def _timeout(self) -> float:
        """RFC 6298, with Linux's least one."""
        if not self._smoothed:
            return 1.0
        wait = self._smoothed + max(4 * self._variance, LEAST_TIMEOUT)
        return float(min(wait * 2**self._timeouts, MOST_TIMEOUT))

    def _arm(self) -> None:
        """One timer: for reordering, for a probe of the tail, or for the timeout."""
        if not self._flying:
            self._timer = math.inf
            return
        now, first = self.calendar.now, next(iter(self._flying.values()))
        if first.order < self._newest:
            wait = self._least / 4
        elif self._probed or self._timeouts or not self._smoothed:
            wait = self._timeout
        else:
            margin = LEAST_TIMEOUT if len(self._flying) == 1 else PROBE_MARGIN
            wait = min(2 * self._smoothed + margin, self._timeout)
        self._timer = now + wait
        self.calendar.add(self._timer, self._expire, self._timer)

    def _expire(self, timer: float) -> None:
        if timer != self._timer:
            return  # it was set anew
        first = next(iter(self._flying.values()))
        if first.order < self._newest:
            self._find_lost(late=True)
        elif self._probed or self._timeouts:
            self._time_out()
        else:
            self._probed = True
            self._probe()
        self._timer = math.inf
        self._send()
        self._arm()

    def _time_out(self) -> None:
        self._timeouts += 1
        self._recovery = -1
        self._lose(list(self._flying))
        self.congestion.on_timeout(self.calendar.now)

    def _probe(self) -> None:
        """Send the last segment once more: its acknowledgement shows what is missing."""
        last = list(self._flying)[-1]
        del self._flying[last]
        self._lost.insert(0, last)
        self._depart([self._record(self.calendar.now)])

    def _wait_for_pace(self) -> None:
        if not self._pacing:
            self._pacing = True
            self.calendar.add(self._may_send_at, self._go_on)

    def _go_on(self, _: object) -> None:
        self._pacing = False
        self._send()


def segments(size: int) -> int:
    """The number of segments that `size` bytes take."""
    return -(-size // MSS)
