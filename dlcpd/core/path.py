"""One path of one flow, seen from its two ends.

Packet numbers count per (flow, path) and are never used again, so the largest one that
arrived tells the sender what is still in flight and what the path lost, whichever
segments they carried.
"""

from dataclasses import dataclass, field
from typing import Final

from dlcpd.core.congestion import DelayWindow
from dlcpd.core.control import PathCredit
from dlcpd.core.rtt import Rtt

_WRAP: Final = 1 << 32
_HALF: Final = 1 << 31


def unwrap(number: int, near: int) -> int:
    """The full packet number whose low 32 bits are `number`, closest to `near`."""
    step = (number - near) % _WRAP
    return near + (step if step < _HALF else step - _WRAP)


def microseconds(now: float) -> int:
    """`now` as it travels in `sent_at`."""
    return int(now * 1e6) % _WRAP


@dataclass(slots=True)
class PathSender:
    """What we sent on a path and what the peer says of it. Packet numbers start at 1."""

    sent: int = 0  # largest packet number sent
    asked: int = 0  # `sent` when credit was last asked for
    acked: int = 0  # largest that arrived
    arrived: int = 0  # packets that arrived
    lost: int = 0  # packets that did not, of those up to `acked`
    up: bool = True  # carries data; a path that is down is only pinged
    expecting: bool = False  # something was sent since the last check that it may have to prove
    answered: bool = False  # a credit for it arrived since the last check
    stalls: int = 0  # checks in a row that found it silent
    rtt: Rtt = field(default_factory=Rtt)
    congestion: DelayWindow = field(default_factory=DelayWindow)

    @property
    def in_flight(self) -> int:
        """Packets sent and neither arrived nor lost."""
        return self.sent - self.acked

    @property
    def room(self) -> int:
        """Packets that may be sent now."""
        return int(self.congestion.window) - self.in_flight

    def on_credit(self, credit: PathCredit, arrived_at: float, now: float) -> int:
        """Take in one CREDIT row; returns packets newly out of flight.

        A row that is older than what is known, or about packets never sent, is ignored.
        """
        largest = unwrap(credit.largest, self.acked)
        arrived = unwrap(credit.received, self.arrived)
        if not self.acked <= largest <= self.sent or arrived < self.arrived:
            return 0
        newly, gained = largest - self.acked, arrived - self.arrived
        lost = max(newly - gained, 0)
        self.acked, self.arrived, self.lost = largest, arrived, max(largest - arrived, 0)
        delay = None
        if credit.echo:
            self._sample(credit, now)
            delay = self._fabric_delay(credit, arrived_at)
        self.congestion.on_credit(
            now, delay=delay, acked=largest, sent=self.sent, arrived=gained, lost=lost
        )
        return newly

    def _sample(self, credit: PathCredit, now: float) -> None:
        """The timers' round trip: from send to the handling of the answer, less the time the
        receiver held it back (RFC 9002 section 5.3)."""
        elapsed = (microseconds(now) - credit.echo) % _WRAP
        self.rtt.update(max(elapsed - credit.held, 0) * 1e-6)

    @staticmethod
    def _fabric_delay(credit: PathCredit, arrived_at: float) -> float:
        elapsed = (microseconds(arrived_at) - credit.echo) % _WRAP
        if elapsed >= _HALF:  # clocks of send and arrival differ by a hair
            return 0.0
        return max(elapsed - credit.held, 0) * 1e-6

    def heard(self) -> None:
        """The peer told of this path: it carries."""
        self.answered = self.up = True

    def check(self) -> bool:
        """Called now and then: whether the path owes an answer and should be pinged."""
        silent = not self.answered and (self.expecting or self.in_flight > 0 or not self.up)
        self.stalls = self.stalls + 1 if silent else 0
        self.answered = self.expecting = False
        return silent

    def demote(self) -> None:
        """Take what is in flight for lost and send no more data until the path answers."""
        self.up, self.acked = False, self.sent


@dataclass(slots=True)
class PathReceiver:
    """What arrived on a path."""

    largest: int = 0
    received: int = 0
    echo: int = 0  # newest time stamp not yet echoed, microseconds; 0 = none
    arrived_at: float = 0.0  # when it arrived
    ce: int = 0  # datagrams marked Congestion Experienced
    pending: int = 0  # datagrams since the last credit
    asked: bool = False  # the peer asked: credit at once

    def on_datagrams(self, count: int, largest: int) -> None:
        """`count` data datagrams arrived, `largest` the 32-bit number of the newest."""
        self.largest = max(self.largest, unwrap(largest, self.largest))
        self.received += count
        self.pending += count

    def on_stamp(self, sent_at: int, arrived_at: float) -> None:
        """A time stamp to echo, microseconds of the sender's clock, and when it came."""
        self.echo, self.arrived_at = sent_at, arrived_at

    def credit(self, path: int, now: float) -> PathCredit:
        """One row of a CREDIT."""
        held = max(int((now - self.arrived_at) * 1e6), 0)
        self.pending, self.asked = 0, False
        echo, self.echo = self.echo, 0  # one sample per stamp
        return PathCredit(path, self.largest % _WRAP, self.received, echo, held)
