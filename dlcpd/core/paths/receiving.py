"""The receiving half of all paths of one flow: what arrived, and what to credit.

A peer may name paths that do not exist.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from dlcpd.core.paths.holes import Holes
from dlcpd.core.paths.path import PathReceiver
from dlcpd.core.wire.control import EndRow, SpaceCredit


@dataclass(eq=False)
class ReceivingPaths:
    """By index, as the peer numbers them."""

    paths: list[PathReceiver]
    # the peer's data datagrams that have not come, though later ones of their class and path have
    holes: Holes = field(default_factory=Holes)
    asked: bool = False  # the peer waits for credit
    pending: bool = False  # there are arrivals that were not credited

    def on_arrival(  # noqa: PLR0913  # of one group of datagrams
        self,
        path: int,
        traffic_class: int,
        count: int,
        largest: int,
        arrived_at: float,
        *,
        marked: int = 0,
        useful: bool = True,
    ) -> bool:
        """`count` data datagrams of a class came at `arrived_at`, the newest numbered `largest`,
        `marked` of them CE. See SpaceReceiver.on_datagrams."""
        if path >= len(self.paths):
            return False
        space = self.paths[path].space(traffic_class)
        before = space.largest - space.received
        news = space.on_datagrams(count, largest, marked, useful=useful)
        self.holes.on_datagrams(count, space.largest - space.received - before, arrived_at)
        self.pending |= news
        return news

    def on_ask(self, path: int, traffic_class: int) -> None:
        """The peer waits for credit of a class on an existing path."""
        self.paths[path].space(traffic_class).asked = self.asked = True

    def on_question(
        self,
        path: int,
        traffic_class: int,
        number: int,
        sent_at: int,
        arrived_at: float,
        *,
        asks: bool = True,
    ) -> bool:
        """The peer says that it has sent `number` packets of a class on a path. Returns whether
        that is new. `asks`: it also asks for credit, and gets it even if nothing is new."""
        if path >= len(self.paths):
            return False
        space = self.paths[path].space(traffic_class)
        before = space.largest - space.received
        fresh = space.on_question(number, sent_at, arrived_at)
        self.holes.on_datagrams(0, space.largest - space.received - before, arrived_at)
        if asks:
            self.on_ask(path, traffic_class)
        return fresh

    def have_delivered(self, ends: Iterable[EndRow]) -> bool:
        """Whether each path has brought a datagram as new as the last one of a pass, or a newer
        one."""
        return all(
            row.path < len(self.paths)
            and self.paths[row.path].has(row.traffic_class, row.packet_number)
            for row in ends
        )

    def on_stamp(self, path: int, traffic_class: int, sent_at: int, arrived_at: float) -> None:
        """The time stamp of a useful datagram, microseconds of the peer's clock, and when it
        came."""
        if path < len(self.paths):
            self.paths[path].space(traffic_class).on_stamp(sent_at, arrived_at)

    def credits(self, now: float) -> list[SpaceCredit]:
        """Rows of a CREDIT; their arrivals are no longer pending."""
        self.asked = self.pending = False
        return [
            space.credit(index, traffic_class, now)
            for index, path in enumerate(self.paths)
            for traffic_class, space in path.owing()
        ]
