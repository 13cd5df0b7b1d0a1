"""Shares the receive buffers of an engine among the peers that send to it."""

from collections.abc import Collection
from dataclasses import dataclass

from dlcpd.core.paths.incast import ArrivalRate
from dlcpd.core.session.flow import Flow


@dataclass(frozen=True, slots=True)
class Grants:
    """Sets `grant` and `opening` of flows: bytes that their peers may have in flight."""

    total: int  # bytes that all peers together may have in flight towards this engine
    max_window: int  # bytes that one peer may
    congestion_control: bool  # False: the buffers alone are the limit
    arriving: ArrivalRate

    def share(self, flows: Collection[Flow]) -> None:
        """Set the initial grant of each sender, as if all of them began at once."""
        for flow in flows:
            self.update(flow, len(flows), len(flows))

    def update(self, flow: Flow, count: int, senders: int) -> None:
        """Set the grant of one of `count` flows: an equal share of the receive buffers, at most
        `max_window`, and at most its part, among `senders`, of what arrives per round trip."""
        flow.grant = flow.opening = min(self.total // count, self.max_window)
        if self.congestion_control:
            seconds, quickest = flow.paths.cover, flow.paths.quickest
            flow.grant = min(self.arriving.share(seconds, quickest, senders), flow.grant)
            flow.opening = min(self.arriving.share(seconds, quickest, count), flow.opening)
