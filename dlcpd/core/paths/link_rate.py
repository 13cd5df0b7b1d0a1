"""The bytes on this host's link in each direction, of all peers and paths, in short bins.

Arrivals count by their kernels' time stamps, so a late engine does not move them. A link never
shows more than its rate, and shows it while it is the limit. It is the limit where data of every
other host wait in a queue, since a slow peer delays the data to or from itself alone.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

from dlcpd.core.paths.newest import WRAP, microseconds

BIN: Final = 0.05  # seconds: a hundred packets of a link of 25 Mb/s
BINS: Final = 30  # of a reading: 1.5 s
LATE: Final = 2  # bins before now: answers that tell of arrivals in them may still come
BEST: Final = 3  # the third best bin counts: stamps of the very best may have been late
NEAR: Final = 1  # bins before and after one that tell of its queue: slow flows are not in each
SPREAD: Final = 5  # bins
LEAST_QUEUE: Final = 12_000  # bytes; 8 packets, as many as a sender lets out at once
LEAST_WAIT: Final = 1e-4  # seconds; stamps resolve no shorter queue
LEAST_USE: Final = 0.5  # of the best bin; while less arrives, the senders are the limit
FRAMES: Final = 42  # bytes of a datagram around that of DLCP: UDP, IPv4 and Ethernet
BASE_SPAN: Final = 10.0  # seconds, as that of the congestion control
BITS: Final = 8
_KEPT: Final = BINS + LATE + 1
_FAR: Final = float("inf")


class LinkReading(NamedTuple):
    """The result of BINS of a direction of a link. Rates in bit/s, with headers."""

    most: int  # the best rate: the link has at least this
    rate: int  # while the link was the limit; 0: it was not
    part: int  # of the bins in which it was, in percent
    hosts: int  # the others that sent, or got, data


@dataclass(slots=True)
class _Bin:
    size: float = 0.0  # bytes
    waits: dict[str, tuple[float, float]] = field(default_factory=dict)  # by host: bytes, and
    # bytes times seconds in queues


@dataclass(slots=True)
class LinkRate:
    """One direction of the link."""

    _bins: list[_Bin] = field(default_factory=lambda: [_Bin() for _ in range(_KEPT)])  # a ring
    _newest: int = 0  # number of the newest bin

    def add(self, host: str, size: float, at: float, wait: float) -> None:
        """`size` bytes to or from `host` came at `at` after `wait` seconds in queues."""
        number = int(at / BIN)
        self._go_on(number)
        if number > self._newest - _KEPT:
            this = self._bins[number % _KEPT]
            this.size += size
            before, waited = this.waits.get(host, (0.0, 0.0))
            this.waits[host] = before + size, waited + size * wait

    def reading(self, now: float) -> LinkReading:
        """The result of the last BINS."""
        self._go_on(int(now / BIN))
        end = self._newest - LATE
        bins = [self._bins[number % _KEPT] for number in range(end - BINS, end)]
        best = sorted(each.size for each in bins)[-BEST] / BIN
        hosts = {host for each in bins for host in each.waits}
        if not best:
            return LinkReading(0, 0, 0, len(hosts))
        queue = max(LEAST_QUEUE / best, LEAST_WAIT)
        limits = sorted(
            each.size
            for number, each in enumerate(bins)
            if each.size >= LEAST_USE * best * BIN
            and _least_wait(bins[max(number - NEAR, 0) : number + NEAR + 1], len(hosts)) >= queue
        )
        rate = limits[len(limits) * 3 // 4] / BIN if limits else 0.0
        part = round(100 * len(limits) / BINS)
        return LinkReading(round(best * BITS), round(rate * BITS), part, len(hosts))

    def _go_on(self, number: int) -> None:
        """Begin a bin, and those between it and the last."""
        for each in range(max(self._newest + 1, number - _KEPT + 1), number + 1):
            self._bins[each % _KEPT] = _Bin()
        self._newest = max(self._newest, number)


def _least_wait(bins: list[_Bin], hosts: int) -> float:
    """Seconds that data of a host waited on average, of the host with the least wait; 0 unless
    there are data of as many `hosts`."""
    sums = defaultdict[str, list[float]](lambda: [0.0, 0.0])
    for each in bins:
        for host, (size, waited) in each.waits.items():
            sums[host][0] += size
            sums[host][1] += waited
    return min(waited / size for size, waited in sums.values()) if len(sums) == hosts else 0.0


@dataclass(slots=True)
class HostLink:
    """Both directions."""

    out: LinkRate = field(default_factory=LinkRate)
    into: LinkRate = field(default_factory=LinkRate)


@dataclass(slots=True)
class LinkPart:
    """The part of a link's direction to or from one host: of one flow."""

    link: LinkRate = field(default_factory=LinkRate)
    host: str = ""
    _last: float = 0.0  # news of what was sent
    _quickest: dict[int, "_Quickest"] = field(default_factory=dict)  # by path

    @classmethod
    def of(cls, link: LinkRate, host: str, here: str) -> Self:
        """Data that stay on the host `here` do not count."""
        return cls(LinkRate() if host == here else link, host)

    def sent(self, size: float, at: float, wait: float) -> None:
        """As LinkRate.add, of all that came since the last news, if that was SPREAD bins ago or
        less: on a slow link, news of a flow are rarer than bins."""
        bins = int(at / BIN) - int(self._last / BIN)
        parts = bins if 1 < bins <= SPREAD else 1
        for number in range(parts):
            self.link.add(self.host, size / parts, at - number * BIN, wait)
        self._last = max(self._last, at)

    def came(self, path: int, size: int, sent_at: int, arrived_at: float) -> None:
        """`size` bytes of one burst; `sent_at`: microseconds of the peer's clock, 0: unknown."""
        if sent_at:
            quickest = self._quickest.get(path)
            if quickest is None:
                quickest = self._quickest[path] = _Quickest()
            self.link.add(self.host, size, arrived_at, quickest.beyond(sent_at, arrived_at))


@dataclass(slots=True)
class _Quickest:
    """The least time between stamps of two clocks, of this span of time and the one before."""

    offset: int | None = None  # microseconds, of the first sample
    least: float = _FAR
    of_span: float = _FAR
    since: float = 0.0

    def beyond(self, sent_at: int, arrived_at: float) -> float:
        """Seconds on the way beyond the least."""
        took = (microseconds(arrived_at) - sent_at) % WRAP
        if self.offset is None:
            self.offset = took
        seconds = ((took - self.offset + WRAP // 2) % WRAP - WRAP // 2) * 1e-6
        if arrived_at - self.since > BASE_SPAN:
            self.least, self.of_span, self.since = self.of_span, _FAR, arrived_at
        self.of_span, self.least = min(self.of_span, seconds), min(self.least, seconds)
        return seconds - self.least
