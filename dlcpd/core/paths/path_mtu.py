"""The path MTU of one path in one direction: searched, confirmed, lowered (RFC 8899).

Packetization-layer path MTU discovery: probes of candidate sizes go out with "don't fragment" set,
and a size counts only once a probe of it was answered. Pure: the owner sends what `on_timer`
returns, calls it again at `timer`, and hands in answers and what the kernel reports.

Sizes are payload bytes of a data datagram, its segment, and multiples of 64. A segment's packet is
larger by the dlcpd header and by `headers`, those of IP and UDP and what io adds.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from dlcpd.core.wire.header import HEADER_SIZE
from dlcpd.core.wire.sizes import BASE, UNIT, datagram_size, segment_within

# Ethernet with and without jumbo frames; overlays, WireGuard and clouds; the most usual first.
COMMON_MTUS: Final = (9000, 1500, 1450, 1400, 1460, 8950, 8896, 1420, 1280)
PARALLEL: Final = 3  # sizes probed at once beside the base: 27 KB of jumbo frames
MAX_PROBES: Final = 5  # unanswered, while others are answered: RFC 8899 says 3 where loss is rare
RAISE: Final = 600.0  # seconds until sizes that failed are tried again (RFC 8899 section 5.1.1)
BLOCKED_RETRY: Final = 5.0  # seconds, where not even the base passes
MIN_WAIT: Final = 0.05  # seconds for answers: above the time a busy host takes to give one
MAX_WAIT: Final = 2.0  # seconds, for a peer that does not answer at all
ROUND_TRIPS: Final = 3.0  # to wait for answers, if that is longer than MIN_WAIT
PATIENCE: Final = 2  # rounds without any answer, after which only small probes are sent
FINE: Final = 16  # the search ends when less than a 16th of the size could be gained
MAX_OUT: Final = 64  # probes whose answers are recognised; twelve rounds
REFERENCE: Final = 0  # the size of a probe that passes on every path that works


class SearchState(Enum):
    """As in RFC 8899 section 5.2."""

    BASE = "base"  # not even the base size is confirmed
    SEARCHING = "searching"
    COMPLETE = "complete"
    BLOCKED = "blocked"  # RFC: Error. Small datagrams are answered, and the base size is not


class MtuProbe(NamedTuple):
    """A datagram to send. Its length is `datagram_size(size)`."""

    number: int  # u32
    size: int  # of the segment; or REFERENCE


@dataclass(slots=True)
class PathMtu:
    """One direction of one path. `timer` is when `on_timer` is due, absolute seconds."""

    headers: int  # bytes of IP and UDP around every datagram: 28 or 48, and of its tag, if any
    most: int  # largest segment to try: the limit of the local interface, or a setting
    timer: float = 0.0
    confirmed: int = 0  # largest segment that a probe has shown to pass; 0 = none
    blocked: bool = False
    _ceiling: int = field(init=False)  # smallest segment that does not pass, as far as is known
    _hints: list[int] = field(default_factory=list)  # sizes that routers named
    _lost: dict[int, int] = field(default_factory=dict)  # by size: probes that went unanswered
    _round: list[int] = field(default_factory=list)  # sizes probed and not yet answered
    _out: dict[int, tuple[int, float]] = field(default_factory=dict)  # number -> size, sent at
    _resting: bool = False  # the search was complete; it is taken up again at `timer`
    _heard: bool = False  # something was answered in this round
    _silent: int = 0  # rounds in a row without any answer
    _doubt: int = 0  # a confirmed size that may not pass any more
    _round_trip: float = 0.0  # seconds, the last one
    _number: int = 0

    def __post_init__(self) -> None:
        self._ceiling = self.most + UNIT

    @property
    def base(self) -> int:
        """The size that is used while none is confirmed."""
        return min(BASE, self.most)

    @property
    def size(self) -> int:
        """Segment to use."""
        return max(self.confirmed, self.base)

    @property
    def packet(self) -> int:
        """Bytes of the largest packet that is known to pass; 0 = none is."""
        return self.confirmed and self.confirmed + HEADER_SIZE + self.headers

    @property
    def state(self) -> SearchState:
        if self.blocked:
            return SearchState.BLOCKED
        if self.confirmed < self.base:
            return SearchState.BASE
        return (
            SearchState.COMPLETE
            if self._resting or not self._candidates()
            else SearchState.SEARCHING
        )

    # --- probing ------------------------------------------------------------------------

    def on_timer(self, now: float) -> list[MtuProbe]:
        """The probes to send now."""
        if self._resting:
            self._reopen()
        self._judge_round()
        sizes = self._candidates()
        self._resting = not sizes
        if not sizes:
            self.timer = now + (BLOCKED_RETRY if self.blocked else RAISE)
            return []
        if self._silent >= PATIENCE:
            sizes = [self.base]
        self._round, self._heard = sizes, False
        wait = max(MIN_WAIT, ROUND_TRIPS * self._round_trip) * 2 ** min(self._silent, 6)
        self.timer = now + min(wait, MAX_WAIT)
        return [self._probe(size, now) for size in (REFERENCE, *sizes)]

    def _reopen(self) -> None:
        """Forget the sizes that failed: the path may carry more by now."""
        self._ceiling = self.most + UNIT
        self._lost.clear()

    def _probe(self, size: int, now: float) -> MtuProbe:
        self._number = (self._number + 1) & 0xFFFFFFFF
        self._out[self._number] = (size, now)
        while len(self._out) > MAX_OUT:
            del self._out[next(iter(self._out))]
        return MtuProbe(self._number, size)

    def _candidates(self) -> list[int]:
        """Sizes to probe next; none when the search is complete."""
        if self._doubt:
            return [self._doubt]
        base = [self.base] if self.confirmed < self.base < self._ceiling else []
        known = [*self._hints, self.most]
        known += [segment_within(mtu, self.headers) for mtu in COMMON_MTUS]
        floor = max(self.confirmed, self.base)
        better = [s for s in dict.fromkeys(known) if floor < s < self._ceiling and s <= self.most]
        if better or base:
            return base + better[:PARALLEL]
        gap = self._ceiling - floor
        if self.confirmed and gap > max(UNIT, floor // FINE):
            return [(floor + self._ceiling) // 2 // UNIT * UNIT]
        return []

    def _judge_round(self) -> None:
        """Count unanswered probes as lost if any other was answered; otherwise the peer or the
        whole path is silent, which says nothing about sizes."""
        self._silent = 0 if self._heard or not self._round else self._silent + 1
        for size in self._round if self._heard else []:
            self._lost[size] = self._lost.get(size, 0) + 1
            if self._lost[size] >= MAX_PROBES:
                self._fail(size)
        self._round = []

    def _fail(self, size: int) -> None:
        """Datagrams of this size do not pass."""
        self._ceiling = min(self._ceiling, size)
        self._lost.pop(size, None)
        self._doubt = 0
        if self.confirmed >= size:
            self.confirmed = 0
        self.blocked = self._ceiling <= self.base

    # --- answers and reports --------------------------------------------------------------

    def on_answer(self, number: int, received: int, now: float) -> bool:
        """The peer got probe `number`, as a datagram of `received` bytes. False: no such probe
        is out, or it came at another length."""
        size, sent_at = self._out.get(number, (-1, 0.0))
        if size < 0 or datagram_size(size) != received:
            return False
        del self._out[number]
        self._round_trip, self._heard = now - sent_at, True
        if size != REFERENCE:
            self._confirm(size, now)
        return True

    def _confirm(self, size: int, now: float) -> None:
        self.confirmed, self.blocked = max(self.confirmed, size), False
        self._lost.pop(size, None)
        if size >= self._doubt:
            self._doubt = 0
        if size >= self._ceiling:
            self._reopen()  # what was known about larger sizes is out of date
            self._again(now)
        if size in self._round:
            self._round.remove(size)
            if not self._round:
                self.timer = now  # on to the next ones
                self._silent = 0

    def on_too_big(self, size: int, limit: int, now: float) -> None:
        """A router, or this host's kernel, refused a datagram of that size and named `limit` as the
        largest that passes; 0 = it named none.

        The caller has verified that the message quotes a datagram of this engine. The base is never
        lowered for such a message alone (RFC 8899 section 4.6.1): probes decide.
        """
        passes = limit if 0 < limit < size else size - UNIT
        ceiling = max(passes, self.base) + UNIT
        if ceiling >= self._ceiling:
            return
        self._ceiling = ceiling
        self._hints = [limit, *self._hints[: PARALLEL - 1]] if limit else self._hints
        if self.confirmed >= ceiling:
            self.confirmed = self._doubt = 0
        self._again(now)

    def suspect(self, now: float) -> None:
        """Data of the size in use have been lost for long: probe whether it still passes."""
        if self.confirmed and not self._doubt:
            self._doubt = self.confirmed
            self._lost.pop(self.confirmed, None)
            self._again(now)

    def on_peer_heard(self, now: float) -> None:
        """The peer has just begun to listen: end the waiting for its silence."""
        if self._silent:
            self._again(now)

    def _again(self, now: float) -> None:
        """Start a new round, without a verdict on the probes in flight."""
        self._round, self._silent, self._resting, self.timer = [], 0, False, now
