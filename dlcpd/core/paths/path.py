"""One path of one flow: its liveness, and a packet number space per traffic class on it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Final

from dlcpd.core.paths import incast
from dlcpd.core.paths.congestion import CongestionControl
from dlcpd.core.paths.link_rate import LinkPart
from dlcpd.core.paths.rtt import Rtt
from dlcpd.core.paths.space import SpaceReceiver, SpaceSender, unwrap

_UNKNOWN: Final = Rtt()


@dataclass(eq=False)
class PathSender:
    """The sending half. `share` is this path's part of the flow's initial window: 1 / paths."""

    share: float = 1.0
    congestion_control: bool = True
    port: bool = True  # False: the path does not leave this host
    up: bool = True  # carries data; a path that is down is only pinged
    expecting: bool = False  # control was sent on it since the last check
    answered: bool = False  # a credit for it arrived since the last check
    stalls: int = 0  # checks in a row that found it silent
    spaces: dict[int, SpaceSender] = field(default_factory=dict)  # by traffic class
    link: LinkPart = field(default_factory=LinkPart)  # of this host, out of it

    def space(self, traffic_class: int) -> SpaceSender:
        """The space of a class, made on its first use."""
        found = self.spaces.get(traffic_class)
        if found is None:
            control = CongestionControl(self.share, self.congestion_control, self.port)
            found = self.spaces[traffic_class] = SpaceSender(congestion=control, link=self.link)
        return found

    def set_share(self, share: float) -> None:
        """1 / `share` paths carry data now."""
        self.share = share
        for space in self.spaces.values():
            space.congestion.share = share

    @property
    def in_flight(self) -> int:
        """Packets in flight on it, of all classes."""
        return self.sent - self.acked

    @property
    def sent(self) -> int:
        """Packets ever sent on it."""
        total = 0
        for space in self.spaces.values():
            total += space.sent
        return total

    @property
    def acked(self) -> int:
        """Packets of it that arrived or are known to be lost."""
        total = 0
        for space in self.spaces.values():
            total += space.acked
        return total

    @property
    def lost(self) -> int:
        """Packets of it that did not arrive."""
        total = 0
        for space in self.spaces.values():
            total += space.lost
        return total

    def rtt(self, traffic_class: int) -> Rtt:
        """Of a class; until it has been measured, of the fastest class that has."""
        own = self.spaces.get(traffic_class)
        if own is not None and own.rtt.measured:
            return own.rtt
        return self._fastest()

    def _fastest(self) -> Rtt:
        known = [space.rtt for space in self.spaces.values() if space.rtt.measured]
        return min(known, key=lambda rtt: rtt.smoothed, default=_UNKNOWN)

    @property
    def smoothed_rtt(self) -> float:
        """Of the fastest class, seconds."""
        return min((space.rtt.smoothed for space in self.spaces.values()), default=1.0)

    @property
    def cover(self) -> float:
        """Seconds of arrivals that it needs in flight; 0 = no round trip has been measured."""
        longest, quickest = 0.0, inf
        for space in self.spaces.values():
            if space.rtt.measured:
                longest = max(longest, space.rtt.smoothed)
                quickest = min(quickest, space.congestion.quickest)
        return incast.cover(longest, quickest) if longest else 0.0

    @property
    def margin(self) -> float:
        """Seconds above the round trip in which an answer is in time, in its quickest class; 0 =
        no round trip has been measured."""
        known = [space.rtt.margin for space in self.spaces.values() if space.rtt.measured]
        return min(known, default=0.0)

    @property
    def quickest(self) -> float:
        """Seconds, the minimum RTT of its fastest class; 0 = none has been measured. Infinite
        without a port: see `ArrivalRate.budget`."""
        if not self.port:
            return inf
        known = [s.congestion.quickest for s in self.spaces.values() if s.rtt.measured]
        return min([each for each in known if each < inf], default=0.0)

    @property
    def queue(self) -> float:
        """Seconds that data in flight wait on their way, in the last round; inf: none is there."""
        waits = [s.congestion.queue_delay for s in self.spaces.values() if s.in_flight]
        return min(waits, default=inf)

    @property
    def suspect(self) -> bool:
        """Whether it owed an answer at the last check: other paths are better."""
        return self.stalls > 0

    def heard(self) -> None:
        """The peer acknowledged something on this path: it works."""
        self.answered = self.up = True
        self.stalls = 0

    def check(self) -> bool:
        """Called periodically: whether the path owes an answer and should be pinged."""
        silent = not self.answered and (self.expecting or self.in_flight > 0 or not self.up)
        self.stalls = self.stalls + 1 if silent else 0
        self.answered = self.expecting = False
        return silent

    def demote(self) -> None:
        """Count packets in flight as lost, and send no more data until the path answers."""
        self.up = False
        for space in self.spaces.values():
            space.abandon()


@dataclass(eq=False)
class PathReceiver:
    """The receiving half."""

    spaces: dict[int, SpaceReceiver] = field(default_factory=dict)  # by traffic class

    def space(self, traffic_class: int) -> SpaceReceiver:
        """The space of a class, made on its first use."""
        found = self.spaces.get(traffic_class)
        if found is None:
            found = self.spaces[traffic_class] = SpaceReceiver()
        return found

    def has(self, traffic_class: int, number: int) -> bool:
        """Whether a datagram of a class with this 32-bit packet number, or a newer one, came."""
        space = self.spaces.get(traffic_class)
        return space is not None and unwrap(number, space.largest) <= space.largest

    def owing(self) -> Iterable[tuple[int, SpaceReceiver]]:
        """(class, space) of those with arrivals that were not credited, or a request for credit."""
        return ((c, s) for c, s in self.spaces.items() if s.pending or s.asked)
