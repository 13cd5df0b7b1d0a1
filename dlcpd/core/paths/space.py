"""The packet numbers of one traffic class on one path of one flow, seen from both ends.

Numbers count per (flow, path, class) and are never reused, so the largest one that arrived tells
the sender what is still in flight and what was lost, whichever segments the packets carried.
Classes have spaces of their own (as QUIC's encryption levels have, RFC 9000 section 12.3), because
queues serve them separately: packets that wait behind a more urgent class are not lost, and no sign
of that class's congestion.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.core.paths.congestion import CongestionControl, Feedback
from dlcpd.core.paths.link_rate import FRAMES, LinkPart
from dlcpd.core.paths.newest import Newest, microseconds
from dlcpd.core.paths.rtt import Rtt
from dlcpd.core.wire.control import SpaceCredit
from dlcpd.core.wire.header import ASK

_WRAP: Final = 1 << 32
_HALF: Final = 1 << 31
OLDEST_ECHO: Final = 10.0  # seconds; a starved class may be this late, a forged echo has any age
# Packets, 300 MB, by which a number may be ahead of the largest that came. A number further ahead
# is not of this space; a nearer one that is forged only opens the window once.
MAX_AHEAD: Final = 1 << 18
_CE_WRAP: Final = 1 << 16
ASKS_PER_WINDOW: Final = 4  # credits per window: fewer stall the sender, more wake it for nothing
MARKS: Final = 8  # last datagrams of a part that carry ASK: it survives some loss
ASK_TIME: Final = 2e-3  # seconds of sending between two ASKs at most: the window covers the round
# trip and this time
LEAST_ASKED: Final = 16  # packets, least part of a window for which credit is asked then
MARKS_TIME: Final = 4e-3  # seconds that they take at most, below 25 Mb/s
MARKS_OFTEN: Final = 2  # as MARKS, where credit is asked for so often: the next ASK is near
SMALL_SEND: Final = 12  # packets; fewer are not worth a system call while others are out


def unwrap(number: int, near: int) -> int:
    """The full packet number whose low 32 bits are `number`, closest to `near`."""
    step = (number - near) % _WRAP
    return near + (step if step < _HALF else step - _WRAP)


@dataclass
class SpaceSender:
    """The packets sent in a space, and what the peer reported. Packet numbers start at 1."""

    sent: int = 0  # largest packet number sent
    asked: int = 0  # `sent` when credit was last asked for
    acked: int = 0  # largest that arrived
    arrived: int = 0  # packets that arrived
    lost: int = 0  # packets that did not, of those up to `acked`
    marked: int = 0  # packets that arrived marked CE
    lost_at_most: int = 0  # the maximum of `lost`, which late arrivals lower
    bytes: int = 0  # sent, with headers
    again: int = 0  # packets with segments that were sent before
    _echo: int = 0  # the newest of its own time stamps that came back
    _echo_at: float = -OLDEST_ECHO  # when it came back
    _offset: int | None = None  # microseconds: clock difference and transit of the first sample
    rtt: Rtt = field(default_factory=Rtt)
    congestion: CongestionControl = field(default_factory=CongestionControl)
    link: LinkPart = field(default_factory=LinkPart)  # of this host, out of it

    @property
    def in_flight(self) -> int:
        """Packets sent and neither arrived nor lost."""
        return self.sent - self.acked

    def limit(self, credit: int) -> int:
        """Packets that may be in flight when no other space is used; `credit`: packets that the
        peer takes."""
        return min(credit, int(self.congestion.window))

    def worthwhile(self, credit: int) -> int:
        """With less room than this, wait for more rather than make a small system call."""
        limit = self.limit(credit)
        wanted = min(max(SMALL_SEND, limit // 8), max(limit // 2, 1))
        return min(wanted, self.congestion.worthwhile)

    @property
    def window_room(self) -> int:
        """Packets that the window lets out."""
        return int(self.congestion.window) - self.in_flight

    def room(self, now: float) -> int:
        """Packets that window and pace let out now."""
        room = self.window_room
        return min(room, self.congestion.allowance(now)) if room > 0 else room

    def on_credit(self, credit: SpaceCredit, now: float, *, answer: bool = True) -> int:
        """Take in one CREDIT row, an answer or not (see `is_answer`); returns packets newly out of
        flight.

        Ignores rows that are older than the known state or about packets far beyond those sent. A
        row a little beyond them counts up to `sent`: a forged number has reached the peer. A row
        that is no news gives no sample of the delay.
        """
        largest = unwrap(credit.largest, self.acked)
        arrived = unwrap(credit.received, self.arrived)
        if not self.acked <= largest <= self.sent + MAX_AHEAD or arrived < self.arrived:
            return 0
        largest = min(largest, self.sent)
        newly, gained = largest - self.acked, arrived - self.arrived
        lost = max(newly - gained, 0)
        marked = min((credit.marked - self.marked) % _CE_WRAP, gained)
        self.acked, self.arrived, self.lost = largest, arrived, max(largest - arrived, 0)
        self.lost_at_most = max(self.lost_at_most, self.lost)
        self.marked += marked
        delay = None
        again = not (newly or gained or answer)  # its stamp would look like a long round trip
        if credit.echo and not again and self._sample(credit, now):
            delay = self._transit(credit)
        if gained:
            self._count(credit, gained, delay, now)
        news = Feedback(
            delay,
            round_trip=min(self.rtt.smoothed, self.rtt.latest),
            answered=self.rtt.latest,
            arrived_at=credit.arrived * 1e-6,
            acked=largest,
            sent=self.sent,
            arrived=gained,
            lost=lost,
            marked=marked,
        )
        self.congestion.on_credit(now, news)
        return newly

    def _count(self, credit: SpaceCredit, gained: int, delay: float | None, now: float) -> None:
        """Tell the link of `gained` packets, as of when the newest arrived by our clock."""
        at, waited = now, 0.0
        if delay is not None:
            waited = max(delay - self.congestion.base_delay, 0.0)
            at += waited - (microseconds(now) - credit.echo) % _WRAP * 1e-6
        self.link.sent(gained * (self.bytes / max(self.sent, 1) + FRAMES), at, waited)

    def is_answer(self, credit: SpaceCredit, now: float) -> bool:
        """Whether a row shows that the peer lives: it acknowledges packets, or echoes a time stamp,
        not seen before. A replayed row does not count."""
        told = self.acked < unwrap(credit.largest, self.acked) <= self.sent
        return self._brings_back(credit, now) or told

    def _brings_back(self, credit: SpaceCredit, now: float) -> bool:
        """Whether the row echoes a newer time stamp than all rows before."""
        age = (microseconds(now) - credit.echo) % _WRAP
        newer = 0 < (credit.echo - self._echo) % _WRAP < _HALF
        if not credit.echo or age > OLDEST_ECHO * 1e6:
            return False
        if not newer and now - self._echo_at <= OLDEST_ECHO:
            return False
        self._echo, self._echo_at = credit.echo, now
        return True

    def _sample(self, credit: SpaceCredit, now: float) -> bool:
        """Take a sample of the timers' round trip: from send to the handling of the answer, less
        the time the receiver held it back (RFC 9002 section 5.3). False: the echo is too old to be
        genuine."""
        elapsed = (microseconds(now) - credit.echo) % _WRAP
        if elapsed > OLDEST_ECHO * 1e6:
            return False
        self.rtt.update(max(elapsed - credit.held, 0) * 1e-6)
        return True

    def _transit(self, credit: SpaceCredit) -> float:
        """Seconds on the forward path, plus the difference of the two clocks: only changes matter.

        One way, since the answer may wait in a queue that other senders fill.
        """
        transit = (credit.arrived - credit.echo) % _WRAP
        if self._offset is None:
            self._offset = transit
        return ((transit - self._offset + _HALF) % _WRAP - _HALF) * 1e-6

    def ask(self, flags: NDArray[np.uint8], credit: int, most: int) -> None:
        """Set ASK in the `flags` of a batch that has just been sent: at the quarters of the window
        that end in it, or at shorter parts where a quarter takes longer than ASK_TIME. `credit`,
        `most`: datagrams, that the peer takes, and of a batch."""
        limit = self.limit(credit)
        every = min(max(limit // ASKS_PER_WINDOW, min(limit // 2, MARKS), 1), most)
        marks = min(MARKS, max(every // 2, 1))  # all of a small window would carry ASK three times
        if self.congestion.pace:  # a slow link brings each of them, and its CREDIT, by itself
            marks = min(marks, max(int(self.congestion.pace * MARKS_TIME), MARKS_OFTEN))
        often = max(int(self.congestion.pace * ASK_TIME), LEAST_ASKED)
        if often < every:
            every, marks = often, MARKS_OFTEN
        first = self.sent - len(flags)  # the packet before the batch
        for number in range(max(self.asked + every, first + 1), self.sent + 1, every):
            row = number - first
            flags[max(row - marks, 0) : row] |= ASK
            self.asked = number

    def abandon(self) -> None:
        """Count packets in flight as lost: the path is dead."""
        self.acked = self.sent


@dataclass
class SpaceReceiver:
    """The packets that arrived in a space."""

    largest: int = 0
    received: int = 0
    echo: int = 0  # newest time stamp not yet echoed, microseconds; 0 = none
    marked: int = 0  # datagrams that arrived marked CE
    pending: int = 0  # datagrams since the last credit
    asked: bool = False  # the peer asked: credit at once
    _stamp: Newest = field(default_factory=Newest)

    def on_datagrams(
        self, count: int, largest: int, marked: int = 0, *, useful: bool = True
    ) -> bool:
        """`count` data datagrams arrived, `largest` the 32-bit number of the newest. `useful`: they
        brought missing segments.

        Returns whether that changed anything. A number that is not of this space changes nothing,
        nor do useless datagrams unless they are numbered above all that came. Those advance the
        largest number by at most `count`: a needless retransmission has arrived as well, but a
        datagram that a third party repeats under another number must not close holes or open a
        window.
        """
        newest, before = unwrap(largest, self.largest), self.largest
        if newest > before + MAX_AHEAD or (newest <= before and not useful):
            return False
        if not useful:
            newest = min(newest, before + count)
        self.largest = max(before, newest)
        self.received = min(self.received + count, self.largest)  # a datagram may have come twice
        self.marked += marked
        self.pending += count
        return True

    def on_question(self, number: int, sent_at: int, arrived_at: float) -> bool:
        """The peer asks what has arrived of `number` packets. False, and without effect, if the
        question was sent before a datagram that has come."""
        if not self.on_stamp(sent_at, arrived_at):
            return False
        self.on_datagrams(0, number)
        return True

    def on_stamp(self, sent_at: int, arrived_at: float) -> bool:
        """A time stamp to echo, microseconds of the sender's clock, and when it came; all datagrams
        of a burst have the same. False: it is older than another, and its echo would look like a
        long round trip."""
        if not self._stamp.see(sent_at, arrived_at):
            return False
        self.echo = sent_at
        return True

    def credit(self, path: int, traffic_class: int, now: float) -> SpaceCredit:
        """One row of a CREDIT."""
        self.pending, self.asked = 0, False
        echo, self.echo = self.echo, 0  # one sample per stamp
        held = min(max(int((now - self._stamp.at) * 1e6), 0), _WRAP - 1) if echo else 0
        return SpaceCredit(
            path,
            traffic_class,
            self.marked % _CE_WRAP,
            self.largest % _WRAP,
            self.received,
            echo,
            held,
            microseconds(self._stamp.at),
        )
