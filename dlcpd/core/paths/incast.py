"""How much all peers together may have in flight towards this host.

Many senders meet at the receiver's own link, and only the receiver knows how many: each of them
would keep as much in that queue as a single sender may. So the receiver grants them shares of two
measured bandwidth-delay products (as BBR sizes a window, for all senders together). Their own queue
makes round trips longer, and longer round trips would allow a longer queue: so the grant beyond the
minimum RTT is bounded, in seconds, and by the bytes that a port may queue and the hosts hold: the
datagrams that wait in this host's sockets are not in a port. Nor are those whose CREDIT waits
behind this host's own data.
"""

from dataclasses import dataclass
from typing import Final

PORT: Final = 768 << 10  # bytes that a port may queue: three quarters of 1 MB; binds above 1 Gb/s
INITIAL: Final = PORT  # bytes, before anything has been measured
LEAST: Final = 64 << 10  # bytes; a burst of one sender
LEAST_SHARE: Final = 12 << 10  # bytes; smaller bursts of many senders cost the hosts too much,
FEWEST: Final = 2816  # bytes, two packets; but from 65 senders on, LEAST_SHARE overflows a port
GAIN: Final = 2.0  # bandwidth-delay products: one in flight, one queued or in the hosts
LEAST_DELAY: Final = 2e-3  # seconds; two busy engines may take as long to answer
MOST_EXCESS: Final = 6e-3  # seconds of arrivals beyond the minimum RTT; 75 KB at 100 Mb/s
# Below 115 Mb/s, MOST_EXCESS is less than three target queues of one sender, of 20 packets each.
SLOW: Final = 84 << 10  # bytes of those three
MOST_SLOW: Final = 30e-3  # seconds that they may take
HOSTS: Final = 2.0  # hosts that hold datagrams as long as this one does: it and the sender
LAG_WEIGHT: Final = 1 / 16  # of new data in the smoothed lag
GAP: Final = 5e-3  # seconds without data after which a measurement begins anew
SPAN: Final = 10e-3  # seconds of a measurement; bursts even out
MEMORY: Final = 5.0  # seconds; the best of the last one or two such spans counts
# A wake-up costs more CPU time than the few datagrams that a slow link brings meanwhile.
PAUSE: Final = 1e-3  # seconds at most; a tenth of a sender's target queue at 50 Mb/s
WORTH: Final = 24 << 10  # bytes, 16 datagrams: a fraction of any receive buffer
LEAST_PAUSE: Final = 2e-4  # seconds; faster links bring several datagrams per wake-up anyway


@dataclass(slots=True)
class ArrivalRate:
    """Bytes per second that this host has taken in while data came without a gap."""

    _begin: float = 0.0
    _bytes: int = 0
    _best: float = 0.0  # of this memory span
    _former: float = 0.0  # of the one before
    _since: float = 0.0
    last: float = -1.0  # when data were taken in
    lag: float = 0.0  # seconds that data wait in this host's sockets, smoothed

    def on_bytes(self, size: int, now: float, arrived_at: float) -> None:
        """`size` bytes of data, the first of which the kernel took in at `arrived_at`."""
        self.lag += LAG_WEIGHT * (max(now - arrived_at, 0.0) - self.lag)
        if now - self.last > GAP:
            self._begin, self._bytes = now, 0
        else:
            self._bytes += size
        self.last = now
        if now - self._begin >= SPAN:
            self._best = max(self._best, self._bytes / (now - self._begin))
            self._begin, self._bytes = now, 0
        if now - self._since >= MEMORY:
            self._former, self._best, self._since = self._best, 0.0, now

    @property
    def best(self) -> float:
        """0 = not measured yet."""
        return max(self._best, self._former)

    def pause(self, now: float) -> float:
        """Seconds until WORTH bytes have come after the last data, PAUSE at most; 0: data are to be
        read at once. Data after a silence are."""
        best = self.best
        wait = min(WORTH / best, PAUSE) if best else 0.0
        return max(self.last + wait - now, 0.0) if wait >= LEAST_PAUSE else 0.0

    def budget(self, seconds: float, quickest: float) -> int:
        """Bytes for all senders together: the arrivals of `seconds`, see `cover`; but at
        most the arrivals of the minimum RTT, `quickest`, and the bytes that a port and the hosts
        can hold."""
        if not self.best:
            return INITIAL
        slow = max(min(SLOW / self.best, MOST_SLOW) - MOST_EXCESS, 0.0)
        wanted = self.best * max(seconds + slow, GAIN * LEAST_DELAY)
        most = self.best * (quickest + HOSTS * self.lag) + PORT
        return max(int(min(wanted, most)), LEAST)

    def share(self, seconds: float, quickest: float, senders: int) -> int:
        """Bytes of the budget for each of `senders`; a few packets however many they are."""
        senders = max(senders, 1)
        least = max(min(LEAST_SHARE, PORT // senders), FEWEST)
        return max(self.budget(seconds, quickest) // senders, least)


def cover(round_trip: float, quickest: float) -> float:
    """Seconds of arrivals to have in flight, so that the link is busy while answers travel.

    `round_trip`: seconds, smoothed; `quickest`: seconds, the recent minimum; both include the time
    that the hosts take to answer.
    """
    return min(GAIN * max(round_trip, LEAST_DELAY), quickest + MOST_EXCESS)


def beyond(queue: float) -> float:
    """Seconds of arrivals to have in flight beyond `cover`, where the CREDITs of this host wait
    behind its own data for `queue` seconds: MOST_EXCESS alone would let too few arrive meanwhile.
    """
    return max(queue + LEAST_DELAY - MOST_EXCESS, 0.0)
